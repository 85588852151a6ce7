"""The reboot of a node upgrade: chosen, done, proven by the next boot; and every way in which it goes wrong."""

import msgspec
import pytest

from tests.support.node_world import KERNEL, NodeWorld
from upgrader.core.node_protocol.orders import KubeletTarget, NodeDriver, OrderResult, Reason, Reboot, UpgradeOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun

NEXT = "6.1.0-50-amd64"
REBOOT = Reboot(kernel=NEXT, select=("/sbin/choose", "--default"), restart=("/sbin/reboot",))
DRIVER = NodeDriver(vendor="sim", version="1.0.0")


@pytest.fixture
def world(tmp_path):
    made = NodeWorld(tmp_path)
    made.install_kernel(NEXT)
    return made


BACK = msgspec.structs.replace(REBOOT, kernel=KERNEL)


def run(world, *, upgrade="a", reboot=REBOOT, kubelet=None, undoes=""):
    order = UpgradeOrder(upgrade=upgrade, undoes=undoes, unload=DRIVER, reboot=reboot, kubelet=kubelet)
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def refused(world, **order):
    with pytest.raises(OrderFailedError) as caught:
        run(world, **order)
    return caught.value.reason, str(caught.value)


def test_a_node_upgrade_reboots_last_and_tells_both_boots(world):
    result = run(world, kubelet=KubeletTarget(version="1.35.4", binary="/opt/kube/kubelet"))
    assert result == OrderResult(
        reason=Reason.DONE,
        message=f"rebooted into kernel {NEXT}",
        seconds=result.seconds,
        facts={
            "driver": "sim 1.0.0 unloaded (simulated)",
            "kubelet": "1.35.4",
            "kubelet before": "1.34.4",
            "kernel": NEXT,
            "boot id": "boot-2",
            "boot id before": "boot-1",
        },
    )
    assert (world.machine.kernel, world.machine.boots, world.installed(), world.loaded()) == (NEXT, 2, "1.35.4", False)


def test_systemd_reboots_the_node_where_it_is_the_first_process(world):
    world.run_systemd()
    world.host.path("/sbin/reboot").unlink()
    result = run(world)
    assert (result.reason, world.machine.kernel, world.machine.boots) == (Reason.DONE, NEXT, 2)
    assert world.programs.entered == [f"/sbin/choose --default {NEXT}", "systemctl reboot"]


def test_a_command_of_the_stack_reboots_the_node_in_the_namespaces_of_systemd(world):
    world.run_systemd()
    own = msgspec.structs.replace(REBOOT, restart=("/sbin/reboot", "--force"))
    assert refused(world, reboot=own) == (
        Reason.NOT_REBOOTED,
        "the node did not shut down within 300 s of /sbin/reboot --force",
    )
    assert world.programs.entered == [f"/sbin/choose --default {NEXT}", "/sbin/reboot --force"]


@pytest.mark.parametrize(("systemd", "command"), [(False, "/sbin/reboot"), (True, "systemctl reboot")])
def test_a_systemctl_that_ignores_the_request_is_reported_immediately(world, systemd, command):
    if systemd:
        world.run_systemd()
    world.machine.ignores = True
    began = world.clock.now
    assert refused(world) == (
        Reason.NOT_REBOOTED,
        f"restarting the node: {command} ended with exit code 0: Running in chroot, ignoring request.",
    )
    assert (world.clock.now, world.machine.boots) == (began, 1)


def test_the_same_upgrade_again_does_not_reboot_again(world):
    first = run(world)
    assert (run(world), world.machine.boots) == (first, 2)


def test_a_kernel_that_runs_already_is_no_reason_to_reboot(world):
    result = run(world, reboot=msgspec.structs.replace(REBOOT, kernel=KERNEL))
    assert result.message == f"sim 1.0.0 unloaded (simulated); kernel {KERNEL} runs already"
    assert world.machine.boots == 1


def test_going_back_leads_to_the_kernel_before(world):
    run(world)
    result = run(world, upgrade="a-revert", undoes="a", reboot=BACK)
    assert (result.reason, world.machine.kernel, world.machine.boots) == (Reason.DONE, KERNEL, 3)


@pytest.mark.parametrize(
    ("state", "seconds", "why"),
    [
        ({"holders": ["pid 7 (trainer)"]}, 60, "sim 1.0.0 is in use: pid 7 (trainer)"),
        ({"code": 3}, 0, "`unload` of sim 1.0.0 ended with exit code 3: it went wrong"),
        (
            {"removal_seconds": 61},
            60,
            "sim 1.0.0 cannot be unloaded (limit: that of an unload before a reboot): unload did not end within 60 s",
        ),
    ],
    ids=["in use", "failed", "hung"],
)
def test_a_reboot_waits_a_minute_for_a_driver_that_is_not_unloaded_and_ends_it(world, state, seconds, why):
    for name, value in state.items():
        setattr(world.programs, name, value)
    began = world.clock.now
    result = run(world)
    assert result == OrderResult(
        reason=Reason.DONE,
        message=f"rebooted into kernel {NEXT}; driver not unloaded before the reboot: {why}",
        seconds=result.seconds,
        facts={
            "driver not unloaded before the reboot": why,
            "kernel": NEXT,
            "boot id": "boot-2",
            "boot id before": "boot-1",
        },
    )
    assert (world.clock.now - began, world.machine.boots, world.loaded()) == (seconds, 2, False)


def test_a_driver_in_use_stops_an_upgrade_whose_kernel_runs_already(world):
    world.programs.holders = ["pid 7 (trainer)"]
    assert refused(world, reboot=BACK)[0] is Reason.BUSY
    assert (world.machine.boots, world.machine.selected) == (1, KERNEL)


def test_a_node_that_comes_up_with_another_kernel_is_told_of_and_not_rebooted_again(world):
    deaf = msgspec.structs.replace(REBOOT, select=("/sbin/choose", "--once"))
    result = run(world, reboot=deaf)
    assert result == OrderResult(
        reason=Reason.KERNEL_MISMATCH,
        message=f"the node booted kernel {KERNEL} instead of {NEXT}; check what /sbin/choose does",
        seconds=result.seconds,
        facts={
            "driver": "sim 1.0.0 unloaded (simulated)",
            "kernel": KERNEL,
            "boot id": "boot-2",
            "boot id before": "boot-1",
        },
    )
    assert (run(world, reboot=deaf), world.machine.boots) == (result, 2)


def test_a_kernel_that_cannot_be_chosen(world):
    broken = msgspec.structs.replace(REBOOT, select=("/sbin/broken",))
    assert refused(world, reboot=broken) == (
        Reason.NOT_REBOOTED,
        f"selecting the kernel: /sbin/broken {NEXT} ended with exit code 3: no such entry",
    )
    assert world.machine.boots == 1


def test_a_node_that_does_not_go_down_is_waited_for_and_the_next_run_tries_again(world):
    world.machine.stuck = True
    began = world.clock.now
    assert refused(world) == (
        Reason.NOT_REBOOTED,
        "the node did not shut down within 300 s of /sbin/reboot",
    )
    assert world.clock.now - began == pytest.approx(300, abs=2)
    world.machine.stuck = False
    assert (run(world).reason, world.machine.kernel) == (Reason.DONE, NEXT)


def test_going_back_from_a_node_that_did_not_go_down_reboots_since_that_may_still_come(world):
    world.machine.stuck = True
    refused(world)
    assert world.machine.selected == NEXT
    world.machine.stuck = False
    result = run(world, upgrade="a-revert", undoes="a", reboot=BACK)
    assert (result.reason, world.machine.kernel, world.machine.selected) == (Reason.DONE, KERNEL, KERNEL)
    assert world.machine.boots == 2


def test_going_back_from_another_kernel_than_chosen_undoes_the_choice_without_a_reboot(world):
    run(world, reboot=msgspec.structs.replace(REBOOT, select=("/sbin/choose", "--once")))
    world.machine.selected = NEXT  # it was chosen, and the machine could not boot it
    result = run(world, upgrade="a-revert", undoes="a", reboot=BACK)
    assert (result.reason, world.machine.selected, world.machine.boots) == (Reason.DONE, KERNEL, 2)


def test_going_back_from_a_node_upgrade_that_ordered_no_reboot_chooses_nothing(world):
    world.programs.holders = ["pid 7 (trainer)"]
    refused(world, reboot=BACK)
    world.programs.holders, world.machine.selected = [], "by hand"
    run(world, upgrade="a-revert", undoes="a", reboot=BACK)
    assert (world.machine.selected, world.machine.boots) == ("by hand", 1)


def test_another_order_under_the_name_of_a_node_upgrade_that_was_rebooting(world):
    world.machine.stuck = True
    refused(world)
    assert refused(world, reboot=None) == (
        Reason.BAD_ORDER,
        "an earlier run of this upgrade had a reboot in its order",
    )
