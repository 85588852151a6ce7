"""How the driver that is loaded on a node is unloaded.

A driver image that loads leaves beside its record (loaded.py) its own `unload`: the driver that is loaded says itself
how it is taken out, also when its image is long gone.
"""

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Driver, Reason
from upgrader.node.driver.loaded_driver import loaded
from upgrader.node.host.clock import Clock, until
from upgrader.node.host.host import Host
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError

UNLOAD_SECONDS = 60.0
BUSY_LOOK_SECONDS = 2.0


def unload(host: Host, driver: Driver, programs: Programs, clock: Clock, *, patience: float) -> str:
    """See to it that a driver (without a version: whichever there is) is not loaded; says what was done.

    Processes that hold a device are waited for, `patience` seconds long; nobody is ended.

    Raises:
        OrderFailedError: BUSY with pids and names, or the driver's own `unload` failed.
    """
    present = loaded(host.run, driver.vendor)
    if present is None:
        return f"{driver.vendor} {driver.version or 'driver'} was not loaded"
    if driver.version not in {"", present.version}:
        return f"{driver.vendor} {driver.version} was not loaded; {present.version} is"
    name = f"{driver.vendor} {present.version}"
    holders = until(
        lambda: _unload(host, driver.vendor, name, programs), clock=clock, seconds=patience, every=BUSY_LOOK_SECONDS
    )
    if holders:
        raise OrderFailedError(Reason.BUSY, f"{name} is in use: {holders}")
    return f"{name} unloaded" + (" (simulated)" if present.simulated else "")


def _unload(host: Host, vendor: str, name: str, programs: Programs) -> str:
    """Who holds it; empty once it is unloaded."""
    try:
        ended = programs.run(["/bin/sh", str(host.run / vendor / "unload")], seconds=UNLOAD_SECONDS)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{name} is not unloaded: {error}") from error
    said = " ".join(ended.output.split())
    if ended.code == EXIT_CODES[Reason.BUSY]:
        return said or "somebody"
    if ended.code != 0:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"unloading {name} ended with {ended.code}: {said}")
    return ""
