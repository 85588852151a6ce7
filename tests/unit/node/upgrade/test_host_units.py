"""Units of the node that use the driver: stopped for its unload, and started again on every way out."""

import msgspec
import pytest

from tests.support.node_world import KERNEL, NodeWorld
from tests.support.played_systemd import PlayedServices
from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, Reboot, UpgradeOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun

DCGM, OTHER, ABSENT = "nvidia-dcgm.service", "telegraf.service", "nvidia-imex.service"
ORDER = UpgradeOrder(upgrade="a", unload=NodeDriver(vendor="sim", version="1.0.0"), stop_units=(DCGM, OTHER, ABSENT))
NEXT = "6.1.0-50-amd64"
REBOOT = Reboot(kernel=NEXT, select=("/sbin/choose", "--default"), restart=("/sbin/reboot",))
RECORD = "/var/lib/gpu-upgrader/stopped-units.json"
RUNNING = {DCGM: "active", OTHER: "active"}
STOPPED = {DCGM: "inactive", OTHER: "inactive"}


@pytest.fixture
def world(tmp_path):
    made = NodeWorld(tmp_path)
    made.install_kernel(NEXT)
    made.run_systemd()
    made.programs.services = PlayedServices(made.host, DCGM, OTHER)
    return made


def run(world: NodeWorld, order: UpgradeOrder = ORDER) -> OrderResult:
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def recorded(world: NodeWorld) -> bool:
    return world.host.path(RECORD).exists()


def test_units_that_run_are_stopped_for_the_unload_and_start_when_a_driver_is_loaded(world):
    services = world.programs.services
    result = run(world)
    assert result.facts == {
        "stopped units": "nvidia-dcgm.service, telegraf.service",
        "driver": "sim 1.0.0 unloaded (simulated)",
    }
    assert (services.states, recorded(world)) == (STOPPED, True)
    services.look()
    assert services.states == STOPPED
    world.load_driver("2.0.0")
    services.look()
    assert (services.states, recorded(world)) == (RUNNING, False)


def test_units_start_at_once_when_the_unload_fails(world):
    world.programs.holders = ["pid 7 (trainer)"]
    with pytest.raises(OrderFailedError) as caught:
        run(world)
    assert (str(caught.value), caught.value.reason) == ("sim 1.0.0 is in use: pid 7 (trainer)", Reason.BUSY)
    assert (world.programs.services.states, recorded(world)) == (RUNNING, False)


def test_units_start_at_once_when_another_driver_stays_loaded(world):
    world.load_driver("2.0.0")
    assert run(world).facts["driver"] == "sim 1.0.0 was not loaded; 2.0.0 is"
    assert (world.programs.services.states, recorded(world)) == (RUNNING, False)


def test_units_that_a_killed_run_has_stopped_are_started_by_the_next(world):
    services = world.programs.services
    services.failing = ["systemd-run"]
    assert run(world).facts["stopped units"] == (
        "nvidia-dcgm.service, telegraf.service stay stopped: systemd-run of gpu-upgrader-start-units ended with exit "
        "code 1: Connection timed out"
    )
    assert (services.states, services.waiting, recorded(world)) == (STOPPED, None, True)
    services.failing = []
    run(world, msgspec.structs.replace(ORDER, upgrade="b"))
    world.load_driver("2.0.0")
    services.look()
    assert (services.states, recorded(world)) == (RUNNING, False)


def test_an_upgrade_without_an_unload_starts_units_that_a_killed_one_has_stopped(world):
    world.programs.services.failing = ["systemd-run"]
    run(world)
    run(world, UpgradeOrder(upgrade="b"))
    assert (world.programs.services.states, recorded(world)) == (RUNNING, False)


def test_a_unit_that_does_not_stop_leaves_the_driver_loaded(world):
    world.programs.services.failing = ["stop"]
    with pytest.raises(OrderFailedError) as caught:
        run(world)
    assert (caught.value.reason, world.loaded(), world.programs.calls) == (Reason.BUSY, True, 0)
    assert str(caught.value) == (
        "a unit of spec.host.stop, which uses the driver, is not stopped: systemctl stop nvidia-dcgm.service "
        "telegraf.service ended with exit code 1: Connection timed out"
    )


def test_units_start_with_the_driver_of_the_next_boot(world):
    services = world.programs.services
    world.programs.holders = ["pid 7 (trainer)"]
    result = run(world, msgspec.structs.replace(ORDER, reboot=REBOOT))
    assert (result.reason, world.machine.kernel, services.states) == (Reason.DONE, NEXT, STOPPED)
    world.load_driver("2.0.0")
    services.look()
    assert (services.states, recorded(world)) == (RUNNING, False)


def test_a_node_without_systemd_has_no_units(tmp_path):
    world = NodeWorld(tmp_path)
    assert run(world).facts == {"driver": "sim 1.0.0 unloaded (simulated)"}
    assert (recorded(world), world.host.kernel()) == (False, KERNEL)
