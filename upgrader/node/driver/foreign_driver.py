"""A driver of which no image of this operator left a record: loaded by another operator, or by the node itself.

What is loaded, and in which order it can be removed, follows from the kernel: /sys/module/NAME/holders names the
modules that use NAME.
"""

from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.device_holders import find_device_holders, wait_until_unused
from upgrader.node.driver.unload_patience import UnloadPatience
from upgrader.node.host.clock import NodeClock
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError

MODULES = {"nvidia": "nvidia"}
"""By vendor, the kernel module that all others of its driver use."""
DEVICES = {"nvidia": "/dev/nvidia"}
"""By vendor, the begin of the paths of its device files."""


def removal_order(system: Path, module: str) -> tuple[str, ...]:
    """A module and those that use it, directly or not, the users first; empty if it is not loaded.

    `system` is /sys. Modules that are built into the kernel have no `refcnt`, and cannot be removed.
    """
    ordered: dict[str, None] = {}

    def add(name: str, entered: frozenset[str]) -> None:
        folder = system / "module" / name
        if name in entered or not (folder / "refcnt").exists():
            return
        holders = folder / "holders"
        for holder in sorted(path.name for path in holders.iterdir()) if holders.is_dir() else ():
            add(holder, entered | {name})
        ordered.setdefault(name)

    add(module, frozenset())
    return tuple(ordered)


def unload_foreign_driver(
    host: Host, system: Path, vendor: str, programs: ProgramRunner, clock: NodeClock, *, patience: UnloadPatience
) -> str:
    """Remove a driver of a vendor that has no record; returns a summary, empty if none is loaded.

    Processes that use a device are waited for, and none is ended.

    Raises:
        OrderFailedError: BUSY, with the processes or the module in use; DEVICE_FAILED: a removal did not end.
    """
    if not (modules := removal_order(system, MODULES.get(vendor, ""))):
        return ""
    version = read_module_version(system / "module" / modules[-1])
    name = f"{vendor} {version}, which another program loaded,"
    wait_until_unused(
        name,
        lambda: ", ".join(map(str, find_device_holders(host.proc, DEVICES[vendor]))),
        clock=clock,
        seconds=patience.users,
    )
    end = clock.monotonic() + patience.removal
    failure = f"of {name} cannot be removed (limit: {patience.origin})"
    for module in modules:
        _remove_module(module, name, programs, max(1.0, end - clock.monotonic()), failure)
    return f"{name} unloaded: {', '.join(modules)}"


def _remove_module(module: str, name: str, programs: ProgramRunner, seconds: float, failure: str) -> None:
    try:
        ended = programs.run(["rmmod", module], seconds=seconds)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"module {module} {failure}: {error}") from error
    if ended.code != 0:
        raise OrderFailedError(Reason.BUSY, f"module {module} of {name} is in use: {ended.one_line}")


def read_module_version(module: Path) -> str:
    """The version of a module; "of unknown version" if it has none."""
    file = module / "version"
    return file.read_text(encoding="utf-8").strip() if file.exists() else "of unknown version"
