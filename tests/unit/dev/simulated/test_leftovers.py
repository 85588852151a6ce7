"""What the rig names as left of us, by which tests judge law 9."""

from tests.support.torn import asked, silent, stopped
from upgrader.api import names
from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.cluster.rig import Rig, start_training

JOBSETS = ResourceKind(
    group="jobset.x-k8s.io", version="v1alpha2", kind="JobSet", plural="jobsets", namespaced=True, type=dict
)


async def test_nothing_is_left_where_nothing_was_begun() -> None:
    rig = Rig()
    await start_training(rig)
    assert rig.leftovers() == []


async def test_marks_on_pods_are_left() -> None:
    rig = Rig()
    await silent(rig)
    assert rig.leftovers() == [
        f"pod default/{pod} has annotation {mark}"
        for pod in asked(rig)
        for mark in (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS)
    ]


async def test_stopped_owners_are_left_whatever_their_kind() -> None:
    rig = Rig()
    await stopped(rig)
    marked = {"name": "set", "namespace": "team", "annotations": {names.ANNOTATION_STOPPED: "{}"}}
    rig.cluster.store.put(JOBSETS, {"metadata": marked})
    assert [one for one in rig.leftovers() if not one.startswith("node ")] == [
        "JobSet team/set is stopped by the controller",
        "Job default/gang is stopped by the controller",
    ]
