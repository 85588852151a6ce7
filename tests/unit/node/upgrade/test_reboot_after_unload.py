"""A node is rebooted into its own kernel if its driver cannot be unloaded: once, and with proof by the next boot."""

import msgspec
import pytest

from tests.support.node_world import BINARY, KERNEL, NodeWorld
from upgrader.core.node_protocol.orders import KubeletTarget, NodeDriver, OrderResult, Reason, Reboot, UpgradeOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun

REBOOT = Reboot(
    kernel=KERNEL, select=("/sbin/choose", "--default"), restart=("/sbin/reboot",), only_after_failed_unload=True
)
ORDER = UpgradeOrder(upgrade="a", unload=NodeDriver(vendor="sim", version="1.0.0"), reboot=REBOOT)
REVERT = msgspec.structs.replace(ORDER, upgrade="a-revert", undoes="a")
HELD = "sim 1.0.0 is in use: pid 7 (exporter)"


@pytest.fixture
def world(tmp_path):
    made = NodeWorld(tmp_path)
    made.install_kernel("6.1.0-50-amd64")
    return made


def run(world, order=ORDER):
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def refused(world, order=ORDER):
    with pytest.raises(OrderFailedError) as caught:
        run(world, order)
    return caught.value.reason, str(caught.value)


def rebooted(why, seconds):
    return OrderResult(
        reason=Reason.DONE,
        message=f"rebooted into kernel {KERNEL}; driver not unloaded before the reboot: {why}",
        seconds=seconds,
        facts={
            "driver not unloaded before the reboot": why,
            "kernel": KERNEL,
            "boot id": "boot-2",
            "boot id before": "boot-1",
        },
    )


def test_a_driver_that_is_unloaded_is_no_reason_to_reboot(world):
    assert run(world).message == "sim 1.0.0 unloaded (simulated)"
    assert (world.machine.boots, world.loaded()) == (1, False)


def test_processes_that_hold_the_driver_are_reported_once_and_then_ended_by_the_reboot(world):
    world.programs.holders = ["pid 7 (exporter)"]
    began = world.clock.now
    assert refused(world) == (Reason.BUSY, HELD)
    assert (world.clock.now - began, world.machine.boots) == (10, 1)
    result = run(world)
    assert result == rebooted(HELD, result.seconds)
    assert (world.clock.now - began, world.machine.boots, world.loaded()) == (70, 2, False)
    assert (run(world), world.machine.boots) == (result, 2)


@pytest.mark.parametrize(
    ("state", "seconds", "why"),
    [
        ({"code": 3}, 0, "`unload` of sim 1.0.0 ended with exit code 3: it went wrong"),
        (
            {"removal_seconds": 601},
            600,
            "sim 1.0.0 cannot be unloaded (limit: driverUnloadSeconds of the stack): unload did not end within 600 s",
        ),
    ],
    ids=["failed", "hung"],
)
def test_a_removal_that_fails_is_followed_by_the_reboot_immediately(world, state, seconds, why):
    for name, value in state.items():
        setattr(world.programs, name, value)
    began = world.clock.now
    result = run(world)
    assert result == rebooted(why, result.seconds)
    assert (world.clock.now - began, world.machine.boots) == (seconds, 2)


def test_the_kubelet_is_replaced_before_the_reboot(world):
    world.programs.code = 3
    result = run(world, msgspec.structs.replace(ORDER, kubelet=KubeletTarget(version="1.35.4", binary=BINARY)))
    assert (result.reason, result.facts["kubelet"], world.installed()) == (Reason.DONE, "1.35.4", "1.35.4")
    assert world.machine.boots == 2


def test_another_kernel_after_the_reboot_is_reported(world):
    world.programs.code = 3
    world.machine.selected = "6.1.0-50-amd64"
    deaf = msgspec.structs.replace(ORDER, reboot=msgspec.structs.replace(REBOOT, select=("/sbin/choose", "--once")))
    assert run(world, deaf).reason is Reason.KERNEL_MISMATCH
    assert (run(world, deaf).reason, world.machine.boots) == (Reason.KERNEL_MISMATCH, 2)


def test_a_second_failure_after_the_reboot_is_final(world):
    world.programs.holders = ["pid 7 (exporter)"]
    world.machine.stuck = True
    refused(world)
    assert refused(world)[0] is Reason.NOT_REBOOTED
    world.machine.boot()
    world.load_driver("1.0.0", "boot-2")  # as a program of the node that loads a driver at each boot
    assert refused(world) == (Reason.DEVICE_FAILED, f"{HELD}, also after a reboot of the node")
    assert (world.machine.boots, world.loaded()) == (2, True)
    world.programs.holders = []
    assert (run(world).reason, world.machine.boots, world.loaded()) == (Reason.DONE, 2, False)


def test_a_revert_may_reboot_once_more(world):
    world.programs.code = 3
    run(world)
    world.load_driver("1.0.0", "boot-2")
    assert run(world, REVERT).facts["boot id before"] == "boot-2"
    assert world.machine.boots == 3


def test_a_revert_does_not_reboot_for_the_reboot_of_another_boot(world):
    world.programs.code = 3
    run(world)
    world.programs.code = 0
    world.load_driver("1.0.0", "boot-2")
    assert run(world, REVERT).message == "sim 1.0.0 unloaded (simulated)"
    assert world.machine.boots == 2


def test_a_revert_reboots_a_node_that_did_not_go_down_since_that_may_still_come(world):
    world.programs.code, world.machine.stuck = 3, True
    assert refused(world)[0] is Reason.NOT_REBOOTED
    world.programs.code, world.machine.stuck = 0, False
    result = run(world, REVERT)
    assert (result.reason, result.facts["boot id before"], world.machine.boots) == (Reason.DONE, "boot-1", 2)
