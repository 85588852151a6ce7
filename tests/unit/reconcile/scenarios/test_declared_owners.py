"""What is declared on a Deployment, its ReplicaSet or a DaemonSet holds for their pods; it names and stops no gang."""

from collections.abc import Callable, Mapping

import pytest

from tests.support.deployed import daemon, deployed
from upgrader.api import names
from upgrader_dev.simulated.cluster.rig import Rig

VETO = {"karpenter.sh/do-not-disrupt": "true"}
METHOD = {names.ANNOTATION_METHOD: "file"}


def server(rig: Rig, **annotations: Mapping[str, str]) -> None:
    """A pod of a Deployment, and what is declared above it, by kind."""
    rig.fleet.add_replica("web", node="gpu-0", gpus=4)
    deployed(rig.cluster.store, "web", annotations)


DECLARED: dict[str, tuple[Callable[[Rig], None], str]] = {
    "a veto on its ReplicaSet": (lambda rig: server(rig, ReplicaSet=VETO), "Vetoed"),
    "a veto on its Deployment": (lambda rig: server(rig, Deployment=VETO), "Vetoed"),
    "a veto on its DaemonSet": (
        lambda rig: daemon(rig.cluster.store, "web", node="gpu-0", gpus=4, annotations=VETO),
        "Vetoed",
    ),
    "how to ask, on its Deployment": (lambda rig: server(rig, Deployment=METHOD), "GangUndeclared"),
}


async def half_a_minute(declare: Callable[[Rig], None]) -> Rig:
    """A plan begins over one node with such a pod."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    for version in ("1.0", "2.0"):
        rig.put_image(version)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    declare(rig)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0", plugin="2")))
    for _ in range(30):
        await rig.run_second()
    return rig


def evicted(rig: Rig) -> list[str]:
    return [write.name for write in rig.cluster.writes if write.verb == "evict"]


@pytest.mark.parametrize(("declare", "reason"), DECLARED.values(), ids=DECLARED.keys())
async def test_what_an_owner_declares_keeps_its_pod_from_being_evicted(declare, reason):
    rig = await half_a_minute(declare)
    blockers = {blocker.subject: blocker.reason for blocker in rig.plan_now("up").status.blockers}
    assert (evicted(rig), set(blockers.values())) == ([], {reason})


async def test_one_of_which_nobody_says_anything_is_evicted():
    assert evicted(await half_a_minute(server)) == ["web"]
