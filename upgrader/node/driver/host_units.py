"""Units of the node that use the driver: stopped before it is unloaded, and started again when a driver is loaded.

Another pod loads the driver after this program has ended. Therefore systemd itself starts the units: a transient path
unit waits for the record of a loaded driver (loaded_driver.py). The stopped units are recorded on the disk of the node.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.system_units import SystemUnits
from upgrader.node.host.systemd import runs_systemd
from upgrader.node.host.task_result import OrderFailedError
from upgrader.process import atomic_file

RECORD = "stopped-units.json"
"""File in STATE_DIRECTORY; removed when the units are started."""

STARTER = "gpu-upgrader-start-units"
"""Name of the transient path and service."""


class StoppedUnits(Struct, frozen=True, kw_only=True):
    """Units that an upgrade has stopped and that are not started yet."""

    units: tuple[str, ...]


class HostUnits:
    """The units that `spec.host.stop` of a stack names. On a node without systemd there are none."""

    def __init__(self, host: Host, programs: ProgramRunner) -> None:
        self._host = host
        self._units = SystemUnits(host, programs)
        self._record = host.state / RECORD

    def stop(self, units: Sequence[str]) -> tuple[str, ...]:
        """Stop those units that run; returns all that are stopped by an upgrade at this moment.

        Raises:
            OrderFailedError: BUSY; systemd does not stop one.
        """
        stopped = self.read()
        if not units or not runs_systemd(self._host):
            return stopped
        try:
            active = self._units.find_active(units)
            if active:
                stopped = tuple(sorted({*stopped, *active}))
                atomic_file.write_file(self._record, msgspec.json.encode(StoppedUnits(units=stopped)))
                self._units.stop(active)
        except ProcessError as error:
            raise OrderFailedError(
                Reason.BUSY, f"a unit of spec.host.stop, which uses the driver, is not stopped: {error}"
            ) from error
        return stopped

    def read(self) -> tuple[str, ...]:
        """The units that are stopped by an upgrade."""
        if not self._record.exists():
            return ()
        return msgspec.json.decode(self._record.read_bytes(), type=StoppedUnits).units

    def start(self) -> str:
        """Start the stopped units now; returns the fault, if there is one, and then keeps the record."""
        stopped = self.read()
        if not stopped:
            return ""
        try:
            self._units.start(stopped)
        except ProcessError as error:
            return f"{', '.join(stopped)} stay stopped: {error}"
        self._record.unlink()
        return ""

    def start_with_driver(self, vendor: str) -> str:
        """Let systemd start the stopped units as soon as a driver is loaded; returns the fault, if there is one."""
        stopped = self.read()
        if not stopped:
            return ""
        script = f"systemctl start --no-block {' '.join(stopped)}; rm -f {STATE_DIRECTORY}/{RECORD}"
        try:
            self._units.run_when_present(STARTER, f"{RUN_DIRECTORY}/{vendor}/loaded.json", script)
        except ProcessError as error:
            return f"{', '.join(stopped)} stay stopped: {error}"
        return ""
