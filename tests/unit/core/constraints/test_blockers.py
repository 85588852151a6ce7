"""What keeps nodes and gangs from being upgraded, as word and as sentence."""

from datetime import timedelta

import pytest
from msgspec import structs

from tests.support.facts import NEW, OLD, gang, image, member, node, snapshot, target
from tests.support.forecasts import NEXT_KERNEL, H, blockers, foresee, shape
from upgrader.core.constraints.upgrade_groups import group_name
from upgrader.core.forecast.forecast import Blocker, Summary
from upgrader.core.model.fleet import Owner, Refusals
from upgrader_dev.simulated.cluster.ports import START

FROM_A = (node("a"),)
GANG_BLOCKERS = {
    "says nothing about checkpoints": (
        {"method": ""},
        {},
        H.GANG_UNDECLARED,
        (
            "The plan waits until ml/Job/x ends. It declares no checkpoint method. See "
            "docs/guides/job-authors/checkpointing.md."
        ),
    ),
    "declares what cannot be used": (
        {"method": "", "undeclared_because": "Its checkpoint-command is missing."},
        {},
        H.GANG_UNDECLARED,
        (
            "The plan waits until ml/Job/x ends. Its checkpoint-command is missing. See "
            "docs/guides/job-authors/checkpointing.md."
        ),
    ),
    "cannot checkpoint": (
        {"method": "none"},
        {},
        H.GANG_CANNOT_CHECKPOINT,
        "ml/Job/x declares that it cannot checkpoint; the plan waits until it ends.",
    ),
    "was stopped by this plan before": (
        {},
        {"stopped_gangs": frozenset({"ml/Job/x"})},
        H.GANG_ALREADY_STOPPED,
        (
            "ml/Job/x was already stopped by this plan and runs on nodes that are not upgraded. The plan waits until "
            "it ends; to continue earlier, restart it on upgraded nodes."
        ),
    ),
    "its pods ask for what upgraded nodes do not offer": (
        {"members": (member("x-0", "a", not_offered="old.example/gpu"),)},
        {},
        H.RESOURCE_NOT_OFFERED,
        (
            f"ml/Job/x requests old.example/gpu, but nodes of revision {target().revision} offer nvidia.com/gpu: its "
            "pods could not be scheduled there. The plan waits until it ends. To continue earlier, restart it "
            "with the new resource name."
        ),
    ),
    "refused once and is left alone": (
        {"refusals": Refusals(count=1, last="x-0 refuses: no", until=START + timedelta(seconds=1))},
        {},
        H.GANG_REFUSES,
        (
            "ml/Job/x has refused once; the last reason: x-0 refuses: no. The request is repeated after "
            "2026-11-21 09:00:01 UTC."
        ),
    ),
    "refused again and again": (
        {"refusals": Refusals(count=7, last="x-0 refuses: no", until=START + timedelta(hours=1))},
        {},
        H.GANG_REFUSES,
        (
            "ml/Job/x has refused 7 times; the last reason: x-0 refuses: no. The request is repeated after "
            "2026-11-21 10:00:00 UTC."
        ),
    ),
    "did not answer and is left alone": (
        {"refusals": Refusals(unanswered=3, unanswered_last="no word", unanswered_until=START + timedelta(hours=1))},
        {},
        H.GANG_DOES_NOT_ANSWER,
        (
            "ml/Job/x got a request 3 times and did not acknowledge; the last reason: no word. The request is "
            "repeated after "
            "2026-11-21 10:00:00 UTC, with growing pauses. Check why its members do not acknowledge."
        ),
    ),
    "did not answer in time and wants to be left out then": (
        {"refusals": Refusals(left_out=True)},
        {},
        H.NODES_LEFT_OUT,
        (
            "ml/Job/x did not acknowledge in time and declares on-deadline: skip-node; the plan skips its nodes while "
            "it runs."
        ),
    ),
    "is being stopped by another plan": (
        {"stopped_by": "pool-b-1"},
        {},
        H.GANG_ALREADY_STOPPED,
        "ml/Job/x is being stopped by plan pool-b-1; this plan waits until it is restarted.",
    ),
    "would not come back": (
        {"owner": None},
        {},
        H.CANNOT_RESTART,
        (
            "ml/Job/x cannot be stopped and restarted: Its pods have no controller that would create them again. "
            "The plan waits until it ends."
        ),
    ),
    "is a bare pod, and nobody named it": (
        {"owner": None, "bare": True},
        {},
        H.CANNOT_RESTART,
        (
            "ml/Job/x cannot be stopped and restarted: Its pods have no controller that would create them again. The "
            "plan waits until it ends. To continue earlier, name it expendable in the approval."
        ),
    ),
    "would be resumed by somebody else": (
        {"owner": None, "cannot_stop": "Job x belongs to JobSet y."},
        {},
        H.CANNOT_RESTART,
        "ml/Job/x cannot be stopped and restarted: Job x belongs to JobSet y. The plan waits until it ends.",
    ),
    "forbids it": (
        {"veto": "karpenter.sh/do-not-disrupt=true"},
        {},
        H.VETOED,
        (
            "ml/Job/x forbids any disruption by annotation karpenter.sh/do-not-disrupt=true; the plan waits until it "
            "ends, or until the annotation is removed."
        ),
    ),
    "lacks a member": (
        {"wanted": 2},
        {},
        H.GANG_NOT_COMPLETE,
        "1 of 2 members of ml/Job/x run; only complete gangs get a request. Check why the others do not run.",
    ),
    "has a member that waits": (
        {"members": (member("x-0", "a"), member("x-1", "", phase="Pending")), "wanted": 2},
        {},
        H.GANG_NOT_COMPLETE,
        "1 of 2 members of ml/Job/x run; only complete gangs get a request. Check why the others do not run.",
    ),
    "has a member that ends": (
        {"members": (member("x-0", "a"), member("x-1", "a", terminating=True)), "wanted": 1},
        {},
        H.GANG_NOT_COMPLETE,
        "1 of 2 members of ml/Job/x run; only complete gangs get a request. Check why the others do not run.",
    ),
    "uses GPUs outside the pool": (
        {"members": (member("x-0", "a"), member("x-1", "z"))},
        {},
        H.GANG_LEAVES_POOL,
        (
            "ml/Job/x also uses GPUs on z, which stack pool-a does not select; put its nodes into one pool, or wait "
            "until it ends."
        ),
    ),
    "also runs on a node in a node upgrade": (
        {"members": (member("x-0", "a"), member("x-1", "v"))},
        {},
        H.GANG_ON_OTHER_REVISION,
        "ml/Job/x also runs on node v, which is in a node upgrade; it waits until that upgrade ends.",
    ),
    "also runs on a node whose upgrade failed": (
        {"members": (member("x-0", "a"), member("x-1", "w"))},
        {"already": frozenset({"w"})},
        H.GANG_ON_OTHER_REVISION,
        (
            f"ml/Job/x also runs on node w, whose upgrade by this plan did not bring it to revision "
            f"{target().revision}; it would run on mixed drivers. See that node's NodeUpgrade."
        ),
    ),
}


@pytest.mark.parametrize(("changes", "known", "reason", "message"), GANG_BLOCKERS.values(), ids=GANG_BLOCKERS.keys())
def test_a_gang_that(changes, known, reason, message):
    nodes = [node("a"), node("v", NEW, claimed_by="uid-upgrade"), node("w")]
    made = foresee(snapshot(nodes, [gang("x", ["a"], **changes)]), budget=99, **known)
    about = [blocker for blocker in made.blockers if "a" in blocker.nodes]
    assert about == [Blocker(subject="ml/Job/x", reason=reason, message=message, nodes=about[0].nodes)]
    assert not any("a" in batch.nodes for batch in made.batches)
    assert made.interrupted == frozenset()


NODE_BLOCKERS = {
    "is in another upgrade": (
        {"claimed_by": "uid-upgrade", "maintenance": "c-1"},
        {},
        H.NODE_UPGRADING,
        (
            "Node a is claimed by the NodeUpgrade with UID uid-upgrade; the node waits until that NodeUpgrade ends. If "
            "that NodeUpgrade failed, repair the node and delete the NodeUpgrade: the stack then installs the driver "
            "on the node again."
        ),
    ),
    "was left marked by a node upgrade that failed": (
        {"maintenance": "c-1"},
        {},
        H.NODE_UPGRADING,
        (
            "Node a carries the maintenance taint of upgrade group c-1: its upgrade failed and was not undone. See "
            "its NodeUpgrade, repair the node, then remove the taint."
        ),
    ),
    "is not Ready": (
        {"ready": False},
        {},
        H.NODE_NOT_READY,
        "Node a is not Ready; repair it, or remove it from the pool.",
    ),
    "lacks a GPU before any upgrade": (
        {"gpus_allocatable": 7},
        {},
        H.GPUS_MISSING,
        (
            "Node a offers 7 of its 8 GPUs before any upgrade, so its validation would fail; repair it, or drain and "
            "cordon it: then it is upgraded anyway."
        ),
    ),
    "came up with another kernel": (
        {"kernel": NEXT_KERNEL},
        {},
        H.NODE_KERNEL_CHANGED,
        (
            f"Node a booted kernel {NEXT_KERNEL}; it is first repaired to its former driver (560.1), without a plan. "
            "If that fails, see the condition Installed of the stack."
        ),
    ),
    "runs a kernel without an image": (
        {"kernel": "6.1.0-99"},
        {},
        H.NO_DRIVER_IMAGE,
        (
            "There is no Ready DriverImage for sim 570.10 on kernel 6.1.0-99 of node a; build an image and create its "
            "DriverImage."
        ),
    ),
    "would get a plugin that nobody can pin": (
        {},
        {"plugin_digest": ""},
        H.PLUGIN_NOT_RESOLVED,
        (
            "The digest of device plugin registry.example/plugin:1.0 is not known, so node a is not upgraded; check "
            "that its registry can be reached."
        ),
    ),
    "would get a kubelet newer than the API server": (
        {},
        {"kubelet_version": "1.37.0"},
        H.KUBELET_SKEW,
        "Node a: Kubelet 1.37.0 would be newer than the API server (v1.36.0); upgrade the API server first.",
    ),
}


@pytest.mark.parametrize(("changes", "wanted", "reason", "message"), NODE_BLOCKERS.values(), ids=NODE_BLOCKERS.keys())
def test_a_node_that(changes, wanted, reason, message):
    images = (image(OLD), image(NEW), image(OLD, NEXT_KERNEL), image(NEW, NEXT_KERNEL))
    made = foresee(snapshot([node("a", **changes), node("z", NEW)], images=images), wanted=target(**wanted))
    about = [blocker for blocker in made.blockers if blocker.nodes == ("a",)]
    assert about == [Blocker(subject="a", reason=reason, message=message, nodes=("a",))]
    assert not any("a" in batch.nodes for batch in made.batches)


def test_one_blocker_keeps_the_whole_group():
    world = snapshot([node("a"), node("b", skip=True), node("c")], [gang("x", ["a", "b"])])
    made = foresee(world)
    assert blockers(made) == {("b", H.NODE_SKIPPED): ("a", "b")}
    assert shape(made) == [[(("c",), ())]]
    assert made.summary == Summary(drifted=3, nodes=1, batches=1, blocked=2)


def test_every_reason_of_a_group_is_told():
    world = snapshot(
        [node("a", skip=True), node("b", ready=False)],
        [gang("x", ["a", "b"], wanted=3), gang("y", ["b"], method="")],
        pdb_blocked={"ml/Job/x": "keep"},
        steering=False,
    )
    assert set(blockers(foresee(world, budget=8))) == {
        ("a", H.NODE_SKIPPED),
        ("b", H.NODE_NOT_READY),
        ("ml/Job/x", H.GANG_NOT_COMPLETE),
        ("ml/Job/x", H.PDB_BLOCKS),
        ("ml/Job/x", H.PLACEMENT_NOT_GUARANTEED),
        ("ml/Job/y", H.GANG_UNDECLARED),
        (group_name(["a", "b"]), H.GROUP_OVER_BUDGET),
    }


def test_a_kernel_for_which_only_the_new_driver_has_an_image_is_a_rollout():
    world = snapshot([node("a", kernel=NEXT_KERNEL)], images=(image(OLD), image(NEW, NEXT_KERNEL)))
    assert shape(foresee(world)) == [[(("a",), ())]]


def test_a_node_with_the_right_kubelet_is_not_blocked_by_skew():
    world = snapshot([node("a", kubelet_version="1.30.0")])
    assert shape(foresee(world, wanted=target(kubelet_version="1.30.0"))) == [[(("a",), ())]]


def test_a_pod_disruption_budget_holds_gangs_and_evictions_alike():
    web = gang("web", ["b"], replicated=True, method="", owner=None)
    world = snapshot(
        [node("a"), node("b")], [gang("x", ["a"]), web], pdb_blocked={"ml/Job/x": "keep", "ml/Job/web": "web"}
    )
    made = foresee(world)
    assert blockers(made) == {("ml/Job/x", H.PDB_BLOCKS): ("a",), ("ml/Job/web", H.PDB_BLOCKS): ("b",)}
    assert made.blockers[1].message == (
        "PodDisruptionBudget keep does not allow a disruption of ml/Job/x now; the plan waits until it does. "
        "To continue earlier, change that PodDisruptionBudget."
    )


def test_unguaranteed_placement_is_the_approvals_to_allow():
    world = snapshot([node("a"), node("b")], [gang("x", ["a"])], steering=False)
    blocked = foresee(world)
    assert blockers(blocked) == {("ml/Job/x", H.PLACEMENT_NOT_GUARANTEED): ("a",)}
    assert shape(blocked) == [[(("b",), ())]]
    assert foresee(world, unguaranteed=True).interrupted == {"ml/Job/x"}


def test_owners_whose_templates_stay_as_they_are_cannot_be_steered_on_any_cluster():
    jobset = Owner(kind="JobSet", name="x", uid="u", api_version="jobset.x-k8s.io/v1alpha2")
    statefulset = Owner(kind="StatefulSet", name="y", uid="v", api_version="apps/v1")
    world = snapshot(
        [node("a"), node("b")],
        [gang("x", ["a"], owner=jobset), gang("y", ["b"], owner=statefulset)],
        steering=False,  # says nothing about either
    )
    (blocked,) = foresee(world).blockers
    assert (blocked.subject, blocked.reason, blocked.message) == (
        "ml/Job/x",
        H.PLACEMENT_NOT_GUARANTEED,
        (
            "ml/Job/x cannot be steered to upgraded nodes: the templates of its JobSet cannot be changed. "
            "deploy/admission-steering.yaml steers them in namespaces that opt in; placementUnguaranteed in the "
            "approval allows a restart without it."
        ),
    )
    assert foresee(world, unguaranteed=True).interrupted == {"ml/Job/x", "ml/Job/y"}
    assert foresee(structs.replace(world, shaped=("ml",))).interrupted == {"ml/Job/x", "ml/Job/y"}
    assert foresee(structs.replace(world, shaped=("other",))).interrupted == {"ml/Job/y"}


def test_a_group_over_the_budget_names_the_override():
    world = snapshot([node(name) for name in "abcd"], [gang("x", ["a", "b"])])
    made = foresee(world, budget="25%")
    name = group_name(["a", "b"])
    assert [blocker for blocker in made.blockers if blocker.nodes == ("a", "b")] == [
        Blocker(
            subject=name,
            reason=H.GROUP_OVER_BUDGET,
            message="Together these 2 nodes and their gangs take 16 GPUs out of service, the budget is 8 of 32; "
            "maxUnavailable: 16 (or 50%) would allow it.",
            nodes=("a", "b"),
        )
    ]
    assert foresee(world, budget="50%").interrupted == foresee(world, budget=16).interrupted == {"ml/Job/x"}


def test_what_waits_for_broken_nodes_says_for_which():
    world = snapshot([node("a"), node("b", NEW, ready=False), node("c", NEW)], foreign_unavailable_gpus=2)
    made = foresee(world, budget=16)
    assert made.blockers == (
        Blocker(
            subject=group_name(["a"]),
            reason=H.BUDGET_TAKEN,
            message="It would take 8 more GPUs out of service; 10 of the 16 that the budget allows already are (b). "
            "It waits until they are in service again, or until maxUnavailable is raised.",
            nodes=("a",),
        ),
    )


def test_a_gang_without_gpus_is_told_that_its_nodes_may_be_rebooted():
    quiet = gang("quiet", ["a", "c"], gpus=0, method="")
    known = {"images": (image(OLD), image(NEW)), "reboots_after_failed_unload": True}
    (blocker,) = foresee(snapshot([node("a"), node("c", NEW)], [quiet], **known)).blockers
    assert (blocker.reason, blocker.nodes) == (H.GANG_UNDECLARED, ("a",))
    assert "but a reboot, in case the driver cannot be unloaded, of a would end quiet-0;" in blocker.message


def test_a_gang_without_gpus_is_told_with_the_pods_and_nodes_of_the_reboot():
    quiet = gang("quiet", ["a", "b", "c"], gpus=0, method="")
    world = snapshot([node("a"), node("b")], [quiet], images=(image(OLD), image(NEW, NEXT_KERNEL)))
    (blocker,) = foresee(world, wanted=target(kernel=NEXT_KERNEL)).blockers
    assert (blocker.reason, blocker.nodes) == (H.GANG_UNDECLARED, ("a", "b"))
    assert blocker.message.endswith(
        "It has no GPUs, but the reboot of a, b would end quiet-0, quiet-1; move these pods, or name it expendable in "
        "the approval."
    )
