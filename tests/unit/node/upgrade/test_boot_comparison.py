"""A node that has less after its reboot than before: what returns in time, what fails the upgrade, and its revert."""

import msgspec
import pytest

from tests.support.node_hardware import NodeHardware
from tests.support.node_world import KERNEL, NodeWorld
from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, Reboot, UpgradeOrder
from upgrader.node.upgrade.upgrade import UpgradeRun

NEXT = "6.1.0-50-amd64"
REBOOT = Reboot(kernel=NEXT, select=("/sbin/choose", "--default"), restart=("/sbin/reboot",), settle_timeout=40)
ORDER = UpgradeOrder(upgrade="a", unload=NodeDriver(vendor="sim", version="1.0.0"), reboot=REBOOT)
REVERT = msgspec.structs.replace(
    ORDER, upgrade="a-revert", undoes="a", reboot=msgspec.structs.replace(REBOOT, kernel=KERNEL)
)
COMPARED = (
    "out-of-tree kernel module: 4, network link: 2, InfiniBand port: 1, virtual functions: 1, mount: 5, PCIe lanes: 3, "
    "PCIe speed: 2"
)
LOST = "network link ens1: 100 Gb/s → not up; mount /scratch (wekafs): mounted → missing"


@pytest.fixture
def world(tmp_path):
    made = NodeWorld(tmp_path)
    made.install_kernel(NEXT)
    return made


@pytest.fixture
def hardware(world):
    return NodeHardware(world.host.root)


def run(world, order=ORDER):
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def lose(hardware):
    """A link is down and a file system is not mounted."""
    hardware.write("class/net/ens1/operstate", "down")
    lines = hardware.mounts.read_text().splitlines(keepends=True)
    hardware.write_mounts("".join(line for line in lines if "wekafs" not in line))


def result(world, reason, message, **facts):
    boots = world.machine.boots
    return OrderResult(
        reason=reason,
        message=message,
        facts={
            "driver": "sim 1.0.0 unloaded (simulated)",
            "kernel": world.machine.kernel,
            "boot id": f"boot-{boots}",
            "boot id before": f"boot-{boots - 1}",
            "compared with the boot before": COMPARED,
            **facts,
        },
    )


def without_time(found):
    return msgspec.structs.replace(found, seconds=0.0)


def test_a_node_with_all_that_it_had_is_well_at_once(world, hardware):
    world.machine.at_boot.append(lambda: hardware.add_module("new", taint="O"))
    began = world.clock.now
    assert without_time(run(world)) == result(world, Reason.DONE, f"rebooted into kernel {NEXT}")
    assert world.clock.now == began


def test_what_returns_within_the_limit_is_awaited(world, hardware):
    whole = hardware.mounts.read_text()

    def come_back():
        hardware.write("class/net/ens1/operstate", "up")
        hardware.write_mounts(whole)

    world.machine.at_boot.append(lambda: lose(hardware))
    world.clock.later[world.clock.now + 30] = come_back
    began = world.clock.now
    assert run(world).reason is Reason.DONE
    assert world.clock.now - began == 30


def test_what_does_not_return_fails_the_upgrade_and_is_named_also_in_the_next_run(world, hardware):
    world.machine.at_boot.append(lambda: lose(hardware))
    began = world.clock.now
    first = run(world)
    assert without_time(first) == result(
        world,
        Reason.DEGRADED,
        f"rebooted into kernel {NEXT}; 40 s after that the node has less than before: {LOST}; "
        "repair the node, or set spec.reboot.onLoss of the stack to Report",
    )
    assert world.clock.now - began == 40
    assert (run(world), world.machine.boots) == (first, 2)


def test_with_report_the_upgrade_goes_on_and_the_message_has_the_losses(world, hardware):
    world.machine.at_boot.append(lambda: lose(hardware))
    reports = msgspec.structs.replace(ORDER, reboot=msgspec.structs.replace(REBOOT, report_losses=True))
    assert without_time(run(world, reports)) == result(
        world,
        Reason.DONE,
        f"rebooted into kernel {NEXT}; 40 s after that the node has less than before: {LOST}",
    )


@pytest.mark.parametrize("returns", [True, False])
def test_a_revert_is_compared_with_the_node_before_the_upgrade(world, hardware, returns):
    whole = hardware.mounts.read_text()
    world.machine.at_boot.append(lambda: lose(hardware))
    assert run(world).reason is Reason.DEGRADED
    world.machine.at_boot.clear()
    if returns:
        world.machine.at_boot += [
            lambda: hardware.write("class/net/ens1/operstate", "up"),
            lambda: hardware.write_mounts(whole),
        ]
    found = run(world, REVERT)
    assert (found.reason, LOST in found.message) == ((Reason.DONE, False) if returns else (Reason.DEGRADED, True))
    assert (world.machine.kernel, world.machine.boots) == (KERNEL, 3)


def test_what_could_not_be_read_before_is_not_compared_and_the_result_states_it(world, hardware):
    hardware.write_mounts("nonsense\n")
    world.machine.at_boot.append(lambda: hardware.write_mounts(""))
    found = run(world)
    assert (found.reason, found.facts["not compared with the boot before"]) == (
        Reason.DONE,
        "mount: not a line of a mount: 'nonsense'",
    )


def test_a_reboot_without_a_kept_fingerprint_is_reported_as_not_compared(world, hardware):
    world.machine.at_boot += [
        lambda: lose(hardware),
        (world.host.state / "upgrades/a.fingerprint.json").unlink,
    ]
    found = run(world)
    assert (found.reason, found.facts["not compared with the boot before"]) == (
        Reason.DONE,
        "the upgrade kept no fingerprint of the node before its reboot",
    )


def test_another_kernel_than_required_is_reported_first(world, hardware):
    world.machine.at_boot.append(lambda: lose(hardware))
    once = msgspec.structs.replace(ORDER, reboot=msgspec.structs.replace(REBOOT, select=("/sbin/choose", "--once")))
    assert run(world, once).reason is Reason.KERNEL_MISMATCH
