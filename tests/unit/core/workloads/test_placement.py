import pytest

from tests.support.facts import node
from upgrader.api import names
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import OWNERS, owner_kind
from upgrader.core.workloads.placement import Placement, is_steerable, steer_template
from upgrader_dev.simulated.apiserver.objects import apply_merge_patch

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXCLUDED = {"key": "gpu-upgrader.io/revision", "operator": "NotIn", "values": ["old"]}
TOLERATION = {"key": "gpu-upgrader.io/maintenance", "operator": "Equal", "value": "c-1", "effect": "NoSchedule"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def affinity(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


CASES = {
    "a template without any wish gets one term and one toleration": (
        {},
        {"affinity": affinity({"matchExpressions": [EXCLUDED]}), "tolerations": [TOLERATION]},
    ),
    "terms are ORed, so each of them gets the expression": (
        {"affinity": affinity({"matchExpressions": [ZONE]}, {"matchFields": [ZONE]}), "tolerations": [TOLERATION]},
        {
            "affinity": affinity(
                {"matchExpressions": [ZONE, EXCLUDED]}, {"matchFields": [ZONE], "matchExpressions": [EXCLUDED]}
            )
        },
    ),
    "an empty term matches no node and must not begin to": (
        {"affinity": affinity({}, {"matchExpressions": [ZONE]}), "tolerations": [TOLERATION]},
        {"affinity": affinity({}, {"matchExpressions": [ZONE, EXCLUDED]})},
    ),
    "what an earlier restart left is replaced": (
        {
            "affinity": affinity({"matchExpressions": [ZONE, {**EXCLUDED, "values": ["older"]}]}),
            "tolerations": [{"key": "spot", "operator": "Exists"}, {**TOLERATION, "value": "c-0"}],
        },
        {
            "affinity": affinity({"matchExpressions": [ZONE, EXCLUDED]}),
            "tolerations": [{"key": "spot", "operator": "Exists"}, TOLERATION],
        },
    ),
    "a user who tolerates our taint in another way goes on doing so": (
        {"affinity": affinity(), "tolerations": [{"key": TOLERATION["key"], "operator": "Exists"}, TOLERATION]},
        {
            "affinity": affinity({"matchExpressions": [EXCLUDED]}),
            "tolerations": [{"key": TOLERATION["key"], "operator": "Exists"}, TOLERATION],
        },
    ),
    "a user who asks for a revision by our label keeps the wish": (
        {"affinity": affinity({"matchExpressions": [{**EXCLUDED, "operator": "In"}]}), "tolerations": [TOLERATION]},
        {"affinity": affinity({"matchExpressions": [{**EXCLUDED, "operator": "In"}, EXCLUDED]})},
    ),
}


@pytest.mark.parametrize(("before", "changes"), CASES.values(), ids=CASES)
def test_a_restart_steers(before, changes):
    after = steer_template({"spec": before}, Placement(left_behind=("old",), group="c-1"))
    assert after == {"spec": apply_merge_patch(before, changes)}


def test_a_restart_without_anything_to_avoid_takes_our_marks_away():
    before = {"affinity": affinity({"matchExpressions": [EXCLUDED]}), "tolerations": [TOLERATION]}
    assert steer_template({"spec": before}, Placement()) == {
        "spec": {"affinity": {"nodeAffinity": {}}, "tolerations": []}
    }


def test_a_template_that_need_not_change_is_not_changed():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"tolerations": None, "affinity": {"nodeAffinity": None}}}
    assert steer_template(template, Placement()) == template


STEERED = {
    "v1.36.0": {"Job", "MPIJob", "RayJob", "StatefulSet", "LeaderWorkerSet"},
    "v1.35.9": {"MPIJob", "RayJob", "StatefulSet", "LeaderWorkerSet"},
    "": set(),
}


@pytest.mark.parametrize(("version", "kinds"), STEERED.items(), ids=[f"on {one or 'unknown'}" for one in STEERED])
def test_templates_can_be_changed_where_their_project_and_this_version_let_them(version, kinds):
    assert {row.kind for row in OWNERS if is_steerable(row, version)} == kinds


def test_a_row_is_found_whatever_the_version_of_its_group():
    assert owner_kind("Workload", "kueue.x-k8s.io/v1beta2") == owner_kind("Workload", "kueue.x-k8s.io/v1beta1")
    assert owner_kind("Job", "batch.volcano.sh/v1alpha1") != owner_kind("Job", "batch/v1")
    assert owner_kind("Deployment", "apps/v1") is None


def test_the_names_are_those_of_the_api():
    assert (placement.REVISION, placement.MAINTENANCE) == (names.LABEL_REVISION, names.TAINT_MAINTENANCE)


PARTS = {"gpus": 56, "gpus_allocatable": 56, "gpus_in_parts": (("nvidia.com/mig-1g.10gb", 56),)}
WHOLE = {"gpus": 8, "gpus_allocatable": 8}


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        ([node("a", revision="old", **WHOLE), node("b", revision="new", **PARTS)], "old"),
        ([node("a", revision="old", **PARTS), node("b", revision="new", **WHOLE)], "new"),
        ([node("a", revision="old", **PARTS), node("b", revision="new", gpus=0, gpus_allocatable=0)], "old"),
        ([node("a", revision="old", **WHOLE), node("b", revision="new", **WHOLE)], "new"),
        ([node("a", revision="other", **WHOLE)], ""),
        ([node("a", revision="old", ready=False, **WHOLE)], ""),
    ],
    ids=["whole before parts", "whole it is", "parts where nothing is whole", "the first of equals", "strange", "away"],
)
def test_a_gang_that_waits_no_longer_goes_where_most_whole_gpus_are(nodes, chosen):
    assert placement.refuge_revision(nodes, ["new", "old"]) == chosen
