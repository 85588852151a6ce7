"""Unloading the driver that is loaded on a node.

A driver image writes its own `unload` beside the record of the loaded driver (loaded_driver.py), so the driver can be
unloaded without its image.
"""

from pathlib import Path

from upgrader.core.node_protocol.orders import NodeDriver, Reason
from upgrader.node.driver.device_holders import wait_until_unused
from upgrader.node.driver.driver_programs import run_driver_program
from upgrader.node.driver.foreign_driver import unload_foreign_driver
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.driver.unload_patience import UnloadPatience
from upgrader.node.host.clock import NodeClock
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError


def unload_driver(
    host: Host,
    driver: NodeDriver,
    programs: ProgramRunner,
    clock: NodeClock,
    *,
    patience: UnloadPatience,
    adopted: bool = False,
    system: Path = Path("/sys"),
) -> str:
    """Unload a driver if it is loaded; returns a summary for the result.

    A driver without a version means any version. Processes that use a device are waited for, and none is ended.
    `adopted`: a driver without a record, which another program has loaded, is unloaded too.

    Raises:
        OrderFailedError: BUSY, with PIDs and names of processes; or `unload` of the driver failed.
    """
    present = read_loaded_driver(host.run, driver.vendor)
    if present is None and adopted:
        foreign = unload_foreign_driver(host, system, driver.vendor, programs, clock, patience=patience)
        if foreign:
            return foreign
    if present is None:
        return f"{driver.vendor} {driver.version or 'driver'} was not loaded"
    if driver.version not in {"", present.version}:
        return f"{driver.vendor} {driver.version} was not loaded; {present.version} is"
    name = f"{driver.vendor} {present.version}"
    wait_until_unused(
        name,
        lambda: _run_unload(host, driver.vendor, name, programs, patience),
        clock=clock,
        seconds=patience.users,
    )
    return f"{name} unloaded" + (" (simulated)" if present.simulated else "")


def _run_unload(host: Host, vendor: str, name: str, programs: ProgramRunner, patience: UnloadPatience) -> str:
    """The processes that use the driver; empty when it is unloaded."""
    program = host.run / vendor / "unload"
    failure = f"{name} cannot be unloaded (limit: {patience.origin})"
    ended = run_driver_program(program, programs, failure=failure, seconds=patience.removal)
    if ended.code == EXIT_CODES[Reason.BUSY]:
        return ended.one_line or "unknown processes"
    if ended.code != 0:
        message = f"`unload` of {name} ended with exit code {ended.code}: {ended.one_line}"
        raise OrderFailedError(Reason.DEVICE_FAILED, message)
    return ""
