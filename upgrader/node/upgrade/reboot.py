"""The reboot of a node upgrade into an installed kernel; it is done when that kernel runs on another boot.

Nodes select their kernel in different ways (GRUB, systemd-boot, kexec, …), so a program of the node does it.
"""

import os
from collections.abc import Sequence

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import FORMER_BOOT, OrderResult, Reason, Reboot
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.systemd import ENVIRONMENT, node_command, runs_systemd
from upgrader.node.host.task_result import OrderFailedError

SELECT_SECONDS = 120.0
"""Timeout of the program that selects the kernel, which may rebuild an initramfs or a boot menu."""

RESTART_SECONDS = 60.0
"""Timeout of the program that restarts the machine, which returns before the machine is down."""

DEFAULT_RESTART = ("/sbin/reboot",)
"""The default of spec.reboot.restart, which is systemctl under another name where systemd is the first process."""

_IGNORED = "Running in chroot, ignoring"
"""Output of a systemctl that does nothing and ends with exit code 0."""


def reboot_obstacle(order: Reboot, host: Host) -> str:
    """Why the node cannot be rebooted into the kernel, by the files on its disk; empty if there is no obstacle."""
    folders = [host.path(f"{folder}/{order.kernel}") for folder in ("/lib/modules", "/usr/lib/modules")]
    if not any((place / "modules.dep").is_file() for place in folders):
        return (
            f"kernel {order.kernel} is not installed on the node: there is no /lib/modules/{order.kernel}/modules.dep; "
            "install its package, or correct spec.reboot.kernel of the stack"
        )
    commands = [("select", order.select)]
    if not _restarts_by_systemd(order, host):
        commands.append(("restart", order.restart))
    for field, words in commands:
        program = host.path(words[0])
        if not (program.is_file() and os.access(program, os.X_OK)):
            return f"{words[0]} is not a program on the node; correct spec.reboot.{field} of the stack"
    return ""


def select_kernel(order: Reboot, *, host: Host, programs: ProgramRunner) -> None:
    """Select the kernel of the next and all later boots.

    Raises:
        OrderFailedError: NOT_REBOOTED.
    """
    _run_on_node([*order.select, order.kernel], SELECT_SECONDS, host, programs, "selecting the kernel")


def reboot_node(order: Reboot, *, host: Host, programs: ProgramRunner, clock: NodeClock) -> None:
    """Select the kernel and restart the node, which ends this process.

    Raises:
        OrderFailedError: NOT_REBOOTED; the node still runs.
    """
    select_kernel(order, host=host, programs=programs)
    os.sync()  # an image that was just pulled may only be in memory
    before = host.boot_id()
    words = ("systemctl", "reboot") if _restarts_by_systemd(order, host) else order.restart
    _run_on_node(words, RESTART_SECONDS, host, programs, "restarting the node")
    fault = poll_until_no_fault(
        lambda: "the node did not shut down" if host.boot_id() == before else "",
        clock=clock,
        seconds=order.down_timeout,
        every=1.0,
    )
    if fault:
        raise OrderFailedError(Reason.NOT_REBOOTED, f"{fault} within {order.down_timeout} s of {' '.join(words)}")


def boot_result(order: Reboot, *, host: Host, before: str) -> OrderResult:
    """The result after the reboot; `before` is the previous boot ID."""
    kernel, boot_id = host.kernel(), host.boot_id()
    facts = {"kernel": kernel, "boot id": boot_id, FORMER_BOOT: before}
    if kernel != order.kernel:
        return OrderResult(
            reason=Reason.KERNEL_MISMATCH,
            message=f"the node booted kernel {kernel} instead of {order.kernel}; check what {order.select[0]} does",
            facts=facts,
        )
    return OrderResult(reason=Reason.DONE, message=f"rebooted into kernel {kernel}", facts=facts)


def _restarts_by_systemd(order: Reboot, host: Host) -> bool:
    return order.restart == DEFAULT_RESTART and runs_systemd(host)


def _run_on_node(words: Sequence[str], seconds: float, host: Host, programs: ProgramRunner, step: str) -> None:
    try:
        ended = programs.run(node_command(host, words), seconds=seconds, env=ENVIRONMENT)
    except ProcessError as error:
        raise OrderFailedError(Reason.NOT_REBOOTED, f"{step}: {error}") from error
    if ended.code != 0 or _IGNORED in ended.output:
        output = ended.one_line
        raise OrderFailedError(
            Reason.NOT_REBOOTED, f"{step}: {' '.join(words)} ended with exit code {ended.code}: {output}"
        )
