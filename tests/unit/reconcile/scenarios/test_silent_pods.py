"""Pods that do not start, and of which only Events say why: told of in the status, waited for by nothing."""

import pytest

from tests.support.pools import pool
from tests.support.stuck_pods import StuckPods
from upgrader.api import names
from upgrader.api.resources import EVENTS, GPU_STACKS, NODES, PODS
from upgrader.core.errors import ClusterError, UnreachableError
from upgrader.core.model.phases import PlanPhase
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.readings import read_node_features
from upgrader_dev.simulated.cluster.rig import Rig, start_training

MOUNT = ("FailedMount", 'MountVolume.SetUp failed for volume "release" : hostPath type check failed: it is not a file')
SAID = f"it has not started; its kubelet reports {MOUNT[0]}: {MOUNT[1]}"
SANDBOX = 'failed to setup network for sandbox "{}": no route'


class WithoutEvents(FakeCluster):
    """An API server that gives another answer than the Events that it is asked for."""

    answers: Exception | None = None

    async def list(self, kind, namespace="", **selectors):
        if kind is EVENTS and self.answers is not None:
            raise self.answers
        return await super().list(kind, namespace, **selectors)


class Watched(Rig):
    """A rig whose stack labels; `stuck` are the pods that do not start."""

    stuck: StuckPods

    def __init__(self) -> None:
        super().__init__(WithoutEvents())

    def breaks(self, component: str, *nodes: str, says: tuple[tuple[str, str], ...] = (MOUNT,)) -> None:
        self.stuck = StuckPods(self.cluster, component, set(nodes), list(says))
        self.others.append(self.stuck)
        if component == "node-features":
            self.fleet.features = lambda node: None if node["metadata"]["name"] in nodes else read_node_features(node)

    def mend(self) -> None:
        self.others.remove(self.stuck)
        self.fleet.features = read_node_features

    def labels(self) -> None:
        self.apply_stack(self.make_spec("1.0") | {"nodeFeatures": "Auto"})

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = next(one for one in self.stack_now().status.conditions if one.type == kind)
        return found.status, found.reason, found.message

    def labeller(self) -> tuple[str, str, str]:
        found = self.stack_now().status.node_features
        return found.state.value, found.shown, found.message

    async def later(self, count: int) -> None:
        for _ in range(count):
            await self.run_second()


@pytest.fixture
async def rig() -> Watched:
    made = Watched()
    await pool(made, nodes=2)
    return made


async def test_a_stack_that_does_not_label_says_that_its_labeller_is_somebody_elses(rig: Watched) -> None:
    assert rig.labeller() == ("External", "External", "")


async def test_a_labeller_that_is_on_all_nodes_is_counted(rig: Watched) -> None:
    rig.labels()
    await rig.later(5)
    assert rig.labeller() == ("Ready", "2/2", "")
    assert rig.condition("OperandsReady")[:2] == ("True", "Ready")
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    await rig.later(2)
    assert rig.labeller() == ("Ready", "1/1", "")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.later(2)
    assert rig.labeller() == ("External", "External", "")


async def test_a_labeller_that_does_not_start_is_named_with_its_node_and_what_its_kubelet_says(rig: Watched) -> None:
    rig.breaks("node-features", "gpu-1")
    rig.labels()
    await rig.later(5)
    assert rig.labeller() == ("Waiting", "1/2", "gpu-1: it is starting")
    await rig.later(60)
    assert rig.labeller() == ("Waiting", "1/2", f"gpu-1: {SAID}")
    assert rig.condition("OperandsReady") == ("False", "NodeFeaturesNotReady", f"NodeFeatures 1/2: gpu-1: {SAID}")
    labels = ("False", "Unreadable", f"nodes: 1 Unreadable, 1 Labelled; gpu-1: {SAID}")
    assert rig.condition("NodeFeatures") == labels
    rig.mend()
    await rig.later(5)
    assert rig.labeller() == ("Ready", "2/2", "")
    assert rig.condition("NodeFeatures")[0] == "True"


async def test_a_labeller_without_an_image_is_named_at_once(rig: Watched) -> None:
    rig.labels()
    await rig.later(3)
    pull = {"reason": "ErrImagePull", "message": "no such image"}
    (pod,) = (
        one["metadata"]
        for one in rig.cluster.store.copy_all(PODS)
        if one["metadata"]["labels"][names.LABEL_COMPONENT] == "node-features" and one["spec"]["nodeName"] == "gpu-0"
    )
    status = {
        "phase": "Running",  # the fleet begins what is Pending
        "conditions": [{"type": "Ready", "status": "False"}],
        "initContainerStatuses": [{"name": "read", "image": "r/u:1", "state": {"waiting": pull}}],
    }
    rig.fleet.features = lambda _: None
    rig.cluster.store.change(PODS, pod["name"], {"status": status}, pod["namespace"])
    await rig.later(2)
    assert rig.labeller() == ("Waiting", "1/2", "gpu-0: image r/u:1: ErrImagePull: no such image")


async def test_an_operand_that_does_not_start_is_told_of_alike(rig: Watched) -> None:
    rig.breaks("driver", "gpu-0")
    await rig.later(70)
    (driver,) = [one for one in rig.stack_now().status.operands if one.operand.value == "Driver"]
    assert (driver.shown, driver.message) == ("1/2", f"gpu-0: {SAID}")
    assert rig.condition("OperandsReady")[1] == "DriverNotReady"


async def test_while_it_stays_so_nothing_is_written_however_often_it_is_said_again(rig: Watched) -> None:
    rig.labels()
    tries = (("FailedCreatePodSandBox", SANDBOX.format(f"{number:064x}")) for number in range(3))
    rig.breaks("node-features", "gpu-0", says=(MOUNT, *tries))
    await rig.later(70)
    said = f"it has not started; its kubelet reports FailedCreatePodSandBox: {SANDBOX.format('…')}"
    assert rig.labeller()[2] == f"gpu-0: {said}"
    before = len(rig.cluster.writes)
    await rig.later(60)
    rig.restart()
    rig.stuck.says.append(("FailedCreatePodSandBox", SANDBOX.format("f" * 64)))
    await rig.later(60)
    assert rig.cluster.writes[before:] == []


async def test_a_fault_that_comes_later_is_told_instead_of_the_one_before(rig: Watched) -> None:
    rig.labels()
    rig.breaks("node-features", "gpu-0")
    await rig.later(70)
    rig.stuck.says.append(("FailedCreatePodSandBox", "(combined from similar events): no route"))
    await rig.later(31)
    assert rig.labeller()[2] == "gpu-0: it has not started; its kubelet reports FailedCreatePodSandBox: no route"


async def test_where_nobody_says_why_that_is_said(rig: Watched) -> None:
    rig.labels()
    rig.breaks("node-features", "gpu-0", says=())
    await rig.later(70)
    assert rig.labeller()[2] == "gpu-0: it has not started, and its kubelet has reported no reason"


async def test_who_may_not_read_events_says_so_and_goes_on(rig: Watched) -> None:
    rig.labels()
    rig.breaks("node-features", "gpu-0")
    rig.cluster.answers = ClusterError("forbidden")
    await rig.later(70)
    said = "it has not started; the reason is not known, since Events cannot be read: forbidden"
    assert rig.labeller()[2] == f"gpu-0: {said}"


async def test_no_step_waits_for_events_that_are_not_answered_for(rig: Watched) -> None:
    rig.labels()
    rig.breaks("node-features", "gpu-0")
    await rig.later(30)
    rig.cluster.answers = UnreachableError("no answer")
    await rig.later(60)
    said = "it has not started; the reason is not known, since Events cannot be read: no answer"
    assert rig.labeller()[2] == f"gpu-0: {said}"
    rig.cluster.answers = None
    await rig.later(60)
    known = rig.labeller()[2]
    assert known == f"gpu-0: {SAID}"
    rig.cluster.answers = UnreachableError("no answer")
    await rig.later(60)
    assert rig.labeller()[2] == known


async def test_no_rollout_waits_for_a_labeller_that_does_not_start() -> None:
    rig = Watched()
    await start_training(rig)
    spec = rig.make_spec("2.0") | {"nodeFeatures": "Auto"}
    rig.breaks("node-features", "gpu-0", "gpu-1")
    rig.apply_plan("up", rig.apply_stack(spec))
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    await rig.later(70)
    assert rig.labeller() == ("Waiting", "0/2", f"gpu-0: {SAID}; gpu-1: {SAID}")
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_node_of_another_stack_is_none_of_its_labellers(rig: Watched) -> None:
    rig.labels()
    rig.fleet.add_node("other-0")
    rig.cluster.store.change(NODES, "other-0", {"metadata": {"labels": {"pool": "b"}}})
    rig.apply_stack(rig.make_spec("1.0") | {"nodeFeatures": "Auto", "nodeSelector": {"pool": "b"}}, "pool-b")
    await rig.later(5)
    both = [one["status"]["nodeFeatures"]["shown"] for one in rig.cluster.store.copy_all(GPU_STACKS)]
    assert sorted(both) == ["1/1", "2/2"]
