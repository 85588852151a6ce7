"""A simulated fleet that looks only at what changed writes what one writes that looks at everything."""

import msgspec

from upgrader.api.resources import JOBS, NODES, PODS
from upgrader_dev.simulated.apiserver.store import ObjectChange
from upgrader_dev.simulated.cluster.controllers import STATEFULSETS, stateful_set
from upgrader_dev.simulated.cluster.fleet import SimulatedFleet
from upgrader_dev.simulated.cluster.placing import RESOURCE, has_owner, trainer_spec
from upgrader_dev.simulated.cluster.pod_programs import PodPrograms
from upgrader_dev.simulated.cluster.rig import Rig, start_training


class LooksAtEverything(SimulatedFleet):
    """What it follows is forgotten before every second, as if that were its first one."""

    def tick(self) -> None:
        before = list(self.store.listeners)
        self.__post_init__()
        super().tick()
        self.store.listeners[:] = before


def disturb(rig: Rig, second: int) -> None:
    """What tests and chaos do to a fleet, at fixed seconds."""
    fleet, store = rig.fleet, rig.cluster.store
    match second:
        case 3:
            fleet.unhealthy["gpu-0"] = 1
            fleet.down.add("gpu-2")
        case 9:
            fleet.down.clear()
            fleet.unhealthy["gpu-0"] = 0
            fleet.add_node("gpu-3")
        case 12:
            fleet.backing_off.add("late")
            fleet.add_job("late", members=2, gpus=4)
            fleet.add_bare_pod("solo", node="gpu-3", gpus=1)
        case 18:
            fleet.backing_off.clear()
            set_of_pods = stateful_set("set", members=2, annotations={}, spec=trainer_spec(2))
            store.put(STATEFULSETS, set_of_pods)
        case 25:
            fleet.external_plugin = True
            store.change(NODES, "gpu-3", {"metadata": {"labels": {"pool": "b"}}, "spec": {"unschedulable": True}})
        case 32:
            store.change(STATEFULSETS, "set", {"spec": {"replicas": 1}}, "default")
            store.change(JOBS, "late", {"spec": {"suspend": True}}, "default")
        case 40:
            fleet.external_plugin = False
            fleet.in_parts.add("gpu-3")
            store.change(JOBS, "late", {"spec": {"suspend": False}}, "default")
        case 47:
            store.change(NODES, "gpu-3", {"spec": {"unschedulable": None}})
        case 55:
            fleet.in_parts.clear()
            store.remove(NODES, "gpu-3")
        case 90:
            store.change(NODES, "gpu-0", {"status": {"allocatable": {RESOURCE: "3"}}})
        case 100:
            daemons = [pod["metadata"] for pod in store.list_values(PODS) if has_owner(pod, "DaemonSet")]
            store.remove(PODS, daemons[0]["name"], daemons[0]["namespace"])


async def writes(fleet: type[SimulatedFleet]) -> list[tuple[str, bytes, bytes]]:
    """All changes of a rollout that is disturbed."""
    rig, result = Rig(), []
    rig.fleet = fleet(cluster=rig.cluster)
    rig.pod_programs = PodPrograms(rig.cluster, rig.fleet.mailbox)

    def note(change: ObjectChange) -> None:
        result.append((change.kind.kind, msgspec.json.encode(change.before), msgspec.json.encode(change.after)))

    rig.cluster.store.listeners.append(note)
    revision = await start_training(rig, nodes=3, members=2, gpus=8)
    rig.apply_plan("up", revision)
    for second in range(120):
        disturb(rig, second)
        await rig.run_second()
    return result


async def test_the_same_is_written_in_the_same_order() -> None:
    quick, thorough = await writes(SimulatedFleet), await writes(LooksAtEverything)
    assert len(quick) > 300
    assert next((pair for pair in zip(quick, thorough, strict=False) if pair[0] != pair[1]), None) is None
    assert len(quick) == len(thorough)


async def test_a_job_that_is_over_makes_no_pod_again() -> None:
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.fleet.add_job("done", gpus=0)
    over = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    rig.cluster.store.change(JOBS, "done", over, "default")
    rig.fleet.tick()
    assert list(rig.cluster.store.list_values(PODS)) == []


async def test_a_node_that_is_lost_while_it_boots_stays_lost() -> None:
    rig = Rig()
    await start_training(rig, nodes=1, members=1)
    rig.fleet.shows_boot_after = 60
    kernel = "6.1.0-50-amd64"
    rig.put_image("2.0", kernel)
    reboot = {"kernel": kernel, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0") | {"reboot": reboot}))
    await rig.run_until(lambda: bool(rig.fleet.reboots))
    rig.cluster.store.remove(NODES, "gpu-0")
    for _ in range(rig.fleet.shows_boot_after + 5):
        await rig.run_second()
    assert rig.nodes() == []
