"""The reboot of a node upgrade: into a kernel that is installed, proven by another boot on which that kernel runs.

How a node chooses its kernel is the node's own affair (GRUB, systemd-boot, kexec…), so a program of the node does it.
"""

import os
from collections.abc import Sequence

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import OrderResult, Reason, Reboot
from upgrader.node.host.clock import Clock, until
from upgrader.node.host.host import Host
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import OrderFailedError

SELECT_SECONDS = 120.0
"""Some rebuild an initramfs or a boot menu."""

RESTART_SECONDS = 60.0
"""The program that restarts a machine returns before the machine is down."""

# In the PATH of the upgrade's image a node's administration is not found: grub-set-default is in /usr/sbin.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}
"""Of the node's own programs, beside what the upgrade's container has."""


def possible(order: Reboot, host: Host) -> str:
    """Why the node cannot be rebooted into the kernel, as far as its disk tells; empty where nothing says so."""
    places = [host.path(f"{folder}/{order.kernel}") for folder in ("/lib/modules", "/usr/lib/modules")]
    if not any((place / "modules.dep").is_file() for place in places):
        return (
            f"kernel {order.kernel} is not installed on the node: there is no /lib/modules/{order.kernel}/modules.dep; "
            "install its package, or correct the stack's spec.reboot.kernel"
        )
    for what, words in (("select", order.select), ("restart", order.restart)):
        program = host.path(words[0])
        if not (program.is_file() and os.access(program, os.X_OK)):
            return f"{words[0]} is no program on the node; correct the stack's spec.reboot.{what}"
    return ""


def choose(order: Reboot, *, host: Host, programs: Programs) -> None:
    """Make the kernel the one that boots from now on, whatever runs.

    Raises:
        OrderFailedError: NOT_REBOOTED.
    """
    _on_the_node([*order.select, order.kernel], SELECT_SECONDS, host, programs, "choosing the kernel")


def leave(order: Reboot, *, host: Host, programs: Programs, clock: Clock) -> None:
    """Choose the kernel and end this boot; where that goes well, it ends this process too.

    Raises:
        OrderFailedError: NOT_REBOOTED, and the node runs on as it did.
    """
    choose(order, host=host, programs=programs)
    os.sync()  # an image that was pulled a moment ago may still be in memory alone
    before = host.boot_id()
    _on_the_node(order.restart, RESTART_SECONDS, host, programs, "restarting the node")
    wrong = until(
        lambda: "the node does not go down" if host.boot_id() == before else "",
        clock=clock,
        seconds=order.down_timeout,
        every=1.0,
    )
    if wrong:
        raise OrderFailedError(Reason.NOT_REBOOTED, f"{wrong} within {order.down_timeout} s of {order.restart[0]}")


def arrived(order: Reboot, *, host: Host, before: str) -> OrderResult:
    """What the boot after `before` came up with."""
    kernel, boot_id = host.kernel(), host.boot_id()
    facts = {"kernel": kernel, "boot id": boot_id, "boot id before": before}
    if kernel != order.kernel:
        return OrderResult(
            reason=Reason.KERNEL_MISMATCH,
            message=f"the node was to boot kernel {order.kernel} and came up with {kernel}; see what "
            f"{order.select[0]} does",
            facts=facts,
        )
    return OrderResult(reason=Reason.DONE, message=f"rebooted into kernel {kernel}", facts=facts)


def _on_the_node(words: Sequence[str], seconds: float, host: Host, programs: Programs, what: str) -> None:
    try:
        ended = programs.run(["chroot", str(host.root), *words], seconds=seconds, env=ENVIRONMENT)
    except ProcessError as error:
        raise OrderFailedError(Reason.NOT_REBOOTED, f"{what}: {error}") from error
    if ended.code != 0:
        said = " ".join(ended.output.split())
        raise OrderFailedError(Reason.NOT_REBOOTED, f"{what}: {' '.join(words)} ended with {ended.code}: {said}")
