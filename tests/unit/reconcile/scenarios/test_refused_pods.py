"""Pods that the API server refuses, or that do not start in an upgrade: the status has the reason, verbatim."""

import pytest

from tests.support.pools import in_phase, pool
from tests.support.stuck_pods import RefusedPods, StuckPods
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, EVENTS, JOBS, NODES
from upgrader.core.errors import ClusterError
from upgrader.core.model.operands import Operand
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.rig import Rig, start_training

QUOTA = 'pods "{}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4'
REFUSED = "it has no pod; the API server refuses to create a pod: "
MOUNT = ("FailedMount", 'MountVolume.SetUp failed for volume "host" : hostPath type check failed: / is no directory')


def told(says: str) -> str:
    """Without how much of a quota is used, which another pod would change."""
    return says.replace("used: pods=4", "used: …")


class Counting(FakeCluster):
    """An API server that counts how often it is asked for Events, and may refuse to tell them."""

    asked = 0
    refuses: ClusterError | None = None

    async def list(self, kind, namespace="", **selectors):
        if kind is EVENTS:
            self.asked += 1
            if self.refuses is not None:
                raise self.refuses
        return await super().list(kind, namespace, **selectors)


class Refusing(Rig):
    """A rig on whose nodes pods of a component cannot be made, or do not start."""

    cluster: Counting

    def __init__(self) -> None:
        super().__init__(Counting())

    def refuses(self, component: str, *nodes: str, says: str = QUOTA) -> None:
        self.others.append(RefusedPods(self.cluster, component, set(nodes), says))

    def breaks(self, component: str, *nodes: str) -> None:
        self.others.append(StuckPods(self.cluster, component, set(nodes), [MOUNT]))

    def operand(self, operand: Operand) -> tuple[str, str]:
        (found,) = [one for one in self.stack_now().status.operands if one.operand is operand]
        return found.shown, found.message

    def operands_ready(self) -> tuple[str, str, str]:
        found = next(one for one in self.stack_now().status.conditions if one.type == "OperandsReady")
        return found.status, found.reason, found.message

    def said(self, component: str, says: str = QUOTA) -> str:
        """The API server's words, with as much of the pod's name as stays the same with each try."""
        (name,) = [
            one["metadata"]["name"]
            for one in self.cluster.store.copy_all(DAEMONSETS)
            if one["metadata"]["labels"][names.LABEL_COMPONENT] == component
        ]
        return REFUSED + told(says).format(f"{name}-"[:58] + "…")

    def told(self) -> str:
        """What the upgrade under way says."""
        (found,) = [one for one in self.upgrades() if one.spec.node.name == "gpu-9"]
        return found.status.message

    async def later(self, count: int) -> None:
        for _ in range(count):
            await self.run_second()


@pytest.fixture
async def rig() -> Refusing:
    made = Refusing()
    await pool(made, nodes=2)
    return made


# ------------------------------------------------------------------------------- operands


async def test_an_operand_of_which_no_pod_can_be_made_is_told_of_in_the_api_servers_words(rig: Refusing) -> None:
    rig.refuses("driver", "gpu-0")
    await rig.later(5)
    assert rig.operand(Operand.DRIVER) == ("1/2", "gpu-0: it has no pod")
    await rig.later(35)
    assert rig.operand(Operand.DRIVER) == ("1/2", f"gpu-0: {rig.said('driver')}")
    kept = f"Driver 1/2: gpu-0: {rig.said('driver')}"
    assert rig.operands_ready() == ("False", "DriverNotReady", kept)
    rig.others.clear()
    await rig.later(3)
    assert rig.operand(Operand.DRIVER) == ("2/2", "")


async def test_a_refusal_that_is_over_is_not_told_for_ever(rig: Refusing) -> None:
    """Its Events stay for an hour; what keeps pods away by then is something else."""
    rig.refuses("driver", "gpu-0")
    await rig.run_until(lambda: rig.operand(Operand.DRIVER)[1] == f"gpu-0: {rig.said('driver')}")
    rig.others.clear()
    rig.refuses("driver", "gpu-0", says="")
    await rig.run_until(lambda: rig.operand(Operand.DRIVER) == ("1/2", "gpu-0: it has no pod"), 1500, stride=10)


async def test_of_many_nodes_one_maker_is_asked_and_nothing_is_written_while_it_stays_so(rig: Refusing) -> None:
    rig.refuses("device-plugin", "gpu-0", "gpu-1")
    await rig.later(40)
    said = rig.said("device-plugin")
    assert rig.operand(Operand.DEVICE_PLUGIN) == ("0/2", f"gpu-0: {said}; gpu-1: {said}")
    writes, asked = len(rig.cluster.writes), rig.cluster.asked
    await rig.later(60)
    assert (rig.cluster.writes[writes:], rig.cluster.asked - asked) == ([], 2)
    rig.restart()
    await rig.later(20)
    assert rig.operand(Operand.DEVICE_PLUGIN)[1] == "gpu-0: it has no pod; gpu-1: it has no pod"


async def test_long_words_are_shown_from_their_beginning(rig: Refusing) -> None:
    long = 'admission webhook "pods.example" denied the request of {}: ' + "not allowed here " * 40
    rig.refuses("driver", "gpu-0", says=long)
    await rig.later(40)
    said = rig.operand(Operand.DRIVER)[1]
    assert said.startswith(f'gpu-0: {REFUSED}admission webhook "pods.example" denied the request of driver-')
    assert (said[-1], len(said)) == ("…", len(f"gpu-0: {REFUSED}") + 301)


async def test_a_labeller_of_which_no_pod_can_be_made_is_told_of_alike(rig: Refusing) -> None:
    rig.apply_stack(rig.make_spec("1.0") | {"nodeFeatures": "Auto"})
    rig.refuses("node-features", "gpu-1")
    await rig.later(40)
    found = rig.stack_now().status.node_features
    assert (found.shown, found.message) == ("1/2", f"gpu-1: {rig.said('node-features')}")


async def test_who_may_not_read_events_says_that_no_pod_is_there_and_why_nobody_knows_more(rig: Refusing) -> None:
    rig.refuses("driver", "gpu-0")
    rig.cluster.refuses = ClusterError("forbidden")
    await rig.later(40)
    told = "gpu-0: it has no pod; the reason is not known, since Events cannot be read: forbidden"
    assert rig.operand(Operand.DRIVER)[1] == told


async def test_a_rollout_in_which_all_goes_well_asks_for_no_events() -> None:
    rig = Refusing()
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: rig.is_over("up"))
    await rig.later(60)
    assert (rig.plan_now("up").status.phase, rig.cluster.asked) == (PlanPhase.COMPLETED, 0)


# ------------------------------------------------------------------------------- pods of a node upgrade


@pytest.mark.parametrize(
    ("component", "phase", "what"),
    [
        ("prepare", NodePhase.PREPARING, "the prepare pod"),
        ("upgrade", NodePhase.UPGRADING, "the upgrade Job"),
        ("validate", NodePhase.VALIDATING, "the validation pod"),
    ],
)
async def test_a_pod_of_a_node_upgrade_that_does_not_start_is_told_of_in_its_kubelets_words(
    rig: Refusing, component: str, phase: NodePhase, what: str
) -> None:
    rig.fleet.add_node("gpu-9")
    rig.breaks(component, "gpu-9")
    await rig.run_until(lambda: in_phase(rig, phase))
    await rig.later(35)
    assert rig.told() == f"{what} has not started; its kubelet reports {MOUNT[0]}: {MOUNT[1]}"
    writes, asked = len(rig.cluster.writes), rig.cluster.asked
    await rig.later(60)
    assert (rig.cluster.writes[writes:], rig.cluster.asked - asked) == ([], 2)
    rig.others.clear()
    await rig.settle()
    rig.assert_nothing_left()


async def test_a_node_upgrade_whose_job_cannot_have_a_pod_says_so_and_ends_with_that(rig: Refusing) -> None:
    rig.fleet.add_node("gpu-9")
    rig.refuses("upgrade", "gpu-9")
    await rig.run_until(lambda: in_phase(rig, NodePhase.UPGRADING))
    await rig.later(35)
    (job,) = [one["metadata"]["name"] for one in rig.cluster.store.copy_all(JOBS) if "gpu-9" in one["metadata"]["name"]]
    said = told(QUOTA).format(f"{job}-"[:58] + "…")
    why = f"the upgrade Job has no pod; the API server refuses to create a pod: {said}"
    assert rig.told() == why
    await rig.run_until(lambda: in_phase(rig, NodePhase.UNLOADING), 3000, stride=5)
    (found,) = [one for one in rig.upgrades() if one.spec.node.name == "gpu-9"]
    assert found.status.steps[-2].result == f"Upgrading exceeded its deadline: {why}; reverting"


async def test_on_a_node_that_is_away_no_kubelet_is_asked(rig: Refusing) -> None:
    rig.fleet.add_node("gpu-9")
    rig.breaks("validate", "gpu-9")
    await rig.run_until(lambda: in_phase(rig, NodePhase.VALIDATING))
    away = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    rig.cluster.store.change(NODES, "gpu-9", {"status": away})
    await rig.later(60)
    assert (rig.told(), rig.cluster.asked) == ("the node is not Ready: it does not respond", 0)


async def test_while_a_pod_says_nothing_at_all_its_upgrade_says_what_it_waits_for(rig: Refusing) -> None:
    rig.fleet.add_node("gpu-9")
    rig.others.append(StuckPods(rig.cluster, "prepare", {"gpu-9"}))
    await rig.run_until(lambda: in_phase(rig, NodePhase.PREPARING))
    await rig.later(40)
    assert rig.told() == "pulling images and checking the node"


async def test_of_many_upgrades_whose_pods_do_not_start_a_few_are_asked_about_at_once(rig: Refusing) -> None:
    nodes = [f"gpu-{number}" for number in range(10, 22)]
    for node in nodes:
        rig.fleet.add_node(node)
    rig.breaks("prepare", *nodes)
    await rig.run_until(lambda: in_phase(rig, NodePhase.PREPARING))
    before = []
    for _ in range(70):
        asked = rig.cluster.asked
        await rig.run_second()
        before.append(rig.cluster.asked - asked)
    assert max(before) == 3
    waiting = [one.status.message for one in rig.upgrades() if one.status.phase is NodePhase.PREPARING]
    assert [one.split("; ")[0] for one in waiting] == ["the prepare pod has not started"] * 12
