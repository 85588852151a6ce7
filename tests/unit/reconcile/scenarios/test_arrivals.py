"""Pods that come to a node after it was drained: they tolerate everything, and nobody asked them for a checkpoint."""

from collections.abc import Callable

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, PODS
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig, start_training

NOW, NEXT = "6.1.0-47-amd64", "6.1.0-50-amd64"
REBOOT = {"kernel": NEXT, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}
DAY = {"timeoutSeconds": 30, "retrySeconds": 86400}


class Latecomer(Rig):
    """One node with a gang on it, and a pod that is bound to it as soon as its upgrade is where the test wants it."""

    async def begin(self, *, arrives: Callable[[Rig], bool], gpus: int = 1, kind: str = "Job") -> None:
        await start_training(self, nodes=1, members=1)
        self.put_image("2.0", NEXT)
        self.came = False

        def arrive() -> None:
            if not self.came and arrives(self):
                self.came = True
                self.late(gpus, kind)

        self.others.append(arrive)
        self.apply_plan("up", self.apply_stack(self.make_spec("2.0", plugin="2") | {"reboot": REBOOT}), checkpoint=DAY)

    def late(self, gpus: int, kind: str) -> None:
        owner = {"apiVersion": "batch/v1", "kind": kind, "name": "late", "uid": "late", "controller": True}
        annotations = {names.ANNOTATION_METHOD: "file"} if kind == "Job" else {}
        self.cluster.store.put(
            PODS,
            {
                "metadata": {
                    "name": "late",
                    "namespace": "default",
                    "ownerReferences": [owner],
                    "annotations": annotations,
                    "labels": {"index": "0"},
                },
                "spec": {
                    "nodeName": "gpu-0",
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "resources": {"limits": {RESOURCE: str(gpus)} if gpus else {}}}],
                },
                "status": {"phase": "Running"},
            },
        )

    def ends(self) -> None:
        self.cluster.store.change(PODS, "late", {"status": {"phase": "Succeeded"}}, "default")

    @property
    def there(self) -> bool:
        return self.cluster.store.find(PODS, "late", "default") is not None

    @property
    def upgrade_jobs(self) -> set[str]:
        upgrades = {one.metadata.uid for one in self.upgrades("up")}
        made = [job["metadata"] for job in self.cluster.store.copy_all(JOBS)]
        mine = [one for one in made if upgrades & {owner["uid"] for owner in one.get("ownerReferences", [])}]
        return {one["name"].split("-")[0] for one in mine}

    @property
    def blocked(self) -> list[str]:
        conditions = [one for upgrade in self.upgrades("up") for one in upgrade.status.conditions]
        return [one.reason for one in conditions if (one.type, one.status) == ("Blocked", "True")]

    @property
    def restored(self) -> bool:
        return {one.status.phase for one in self.requests()} == {RequestPhase.RESTORED}


@pytest.fixture
def rig() -> Latecomer:
    return Latecomer()


def at(phase: NodePhase) -> Callable[[Rig], bool]:
    return lambda rig: any(one.status.phase is phase for one in rig.upgrades("up"))


@pytest.mark.parametrize("gpus", [0, 1])
async def test_a_pod_that_comes_while_operands_go_off_is_waited_for_before_the_reboot(
    rig: Latecomer, gpus: int
) -> None:
    await rig.begin(arrives=at(NodePhase.UNLOADING), gpus=gpus)
    await rig.run_until(lambda: bool(rig.blocked))
    for _ in range(60):
        await rig.run_second()
    assert (rig.blocked, rig.upgrade_jobs, rig.fleet.reboots) == (["PodsArrived"], set(), [])
    assert "pod default/late" in rig.upgrades("up")[0].status.message
    rig.ends()
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.fleet.reboots, rig.fleet.trainers["gang"].lost) == ([("gpu-0", NEXT)], 0)
    rig.assert_nothing_left()


@pytest.mark.parametrize("gpus", [0, 1])
async def test_where_it_stays_its_node_is_released_as_it_was_without_a_node_upgrade_job(
    rig: Latecomer, gpus: int
) -> None:
    await rig.begin(arrives=at(NodePhase.UNLOADING), gpus=gpus)
    before = rig.nodes()[0]["metadata"]["labels"][names.LABEL_DRIVER]
    await rig.run_until(lambda: at(NodePhase.RELEASING)(rig), 900)
    upgrade = rig.upgrades("up")[0].status
    assert (upgrade.reason, rig.upgrade_jobs, rig.fleet.reboots, rig.there) == ("PodsArrived", set(), [], True)
    labels = rig.nodes()[0]["metadata"]["labels"]
    assert (labels[names.LABEL_DRIVER], labels[names.LABEL_OPERANDS]) == (before, "on")
    rig.ends()  # the gang's own place is free again
    await rig.run_until(lambda: rig.restored and at(NodePhase.FAILED)(rig), 900)
    assert "pod default/late to end, which was created after the drain" in rig.upgrades("up")[0].status.message
    rig.assert_nothing_left()


async def test_one_that_its_owner_replaces_is_evicted_and_the_upgrade_goes_on(rig: Latecomer) -> None:
    await rig.begin(arrives=at(NodePhase.UNLOADING), kind="ReplicaSet")
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.came, rig.there, rig.fleet.reboots) == (True, False, [("gpu-0", NEXT)])


def invalid(rig: Latecomer, *, always: bool) -> Callable[[Rig], bool]:
    """The new driver is not valid, nor where `always` the former; the pod comes while that is being found."""
    looked = []

    def pod_results(component: str, pod: dict) -> OrderResult | None:
        forth = component == "validate" and pod["metadata"]["name"].startswith("validate-")
        if not rig.upgrades("up") or not (forth or (always and component == "validate")):
            return None
        looked.append(pod)
        return OrderResult(reason=Reason.DRIVER_MISMATCH, message="no")

    rig.fleet.pod_results = pod_results
    return lambda _: bool(looked)


async def test_one_that_comes_while_the_node_is_validated_is_not_rebooted_over_on_the_way_back(rig: Latecomer) -> None:
    await rig.begin(arrives=invalid(rig, always=False))
    await rig.run_until(lambda: rig.blocked == ["PodsArrived"] and rig.upgrades("up")[0].status.reverting)
    for _ in range(60):
        await rig.run_second()
    assert (rig.upgrade_jobs, rig.fleet.reboots, rig.there) == ({"upgrade"}, [("gpu-0", NEXT)], True)
    rig.ends()
    await rig.run_until(lambda: rig.restored, 900)
    assert rig.fleet.reboots == [("gpu-0", NEXT), ("gpu-0", NOW)]
    rig.assert_nothing_left()


async def test_where_it_stays_on_the_way_back_its_node_is_left_to_a_person_and_not_rebooted(rig: Latecomer) -> None:
    await rig.begin(arrives=invalid(rig, always=True))
    await rig.run_until(lambda: at(NodePhase.FAILED)(rig), 900)
    upgrade = rig.upgrades("up")[0].status
    assert (upgrade.reason, rig.fleet.reboots, rig.there) == ("RevertFailed", [("gpu-0", NEXT)], True)
    assert "pod default/late" in upgrade.message
    assert rig.nodes()[0]["spec"]["taints"]


async def test_one_that_takes_devices_before_they_are_validated_is_waited_for(rig: Latecomer) -> None:
    rig.steps_at_once = 1  # seen in every phase
    await rig.begin(arrives=at(NodePhase.VALIDATING))
    await rig.run_until(lambda: rig.blocked == ["PodsArrived"])
    for _ in range(30):
        await rig.run_second()
    rig.ends()
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.fleet.reboots, rig.upgrades("up")[0].status.phase) == ([("gpu-0", NEXT)], NodePhase.SUCCEEDED)
    rig.assert_nothing_left()


async def test_pods_are_listed_between_what_was_read_and_the_upgrade_job(rig: Latecomer) -> None:
    """Reads of a step lie before its decisions, and requests with slow gangs between them."""
    await rig.begin(arrives=lambda _: False)
    listing = rig.cluster.list

    async def list_(kind, namespace="", **selection):
        found = await listing(kind, namespace, **selection)
        if kind is PODS and at(NodePhase.UPGRADING)(rig) and not rig.came:
            rig.came = True
            rig.late(1, "Job")
        return found

    rig.cluster.list = list_
    await rig.run_until(lambda: rig.came)
    for _ in range(30):
        await rig.run_second()
    assert (rig.upgrade_jobs, rig.fleet.reboots, rig.blocked) == (set(), [], ["PodsArrived"])


async def test_a_pod_of_its_own_that_has_not_ended_yet_is_none_that_came(rig: Latecomer) -> None:
    """A validation pod may still hold devices when its time is over and the node goes back."""
    await rig.begin(arrives=lambda _: False)
    end = rig.fleet._end_node_pod
    rig.fleet._end_node_pod = lambda pod: None if pod["metadata"]["name"].startswith("validate-") else end(pod)
    await rig.run_until(lambda: rig.upgrade_jobs == {"upgrade", "revert"}, 2400, stride=5)
    rig.fleet._end_node_pod = end
    await rig.run_until(lambda: rig.restored, 900)
    assert rig.fleet.reboots == [("gpu-0", NEXT), ("gpu-0", NOW)]
