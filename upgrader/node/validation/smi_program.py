"""nvidia-smi of the driver that is loaded on a node, run with the libraries of that driver."""

from collections.abc import Iterable
from pathlib import Path

from upgrader.core.errors import ProcessError, UnreadableError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.pci import PciDevice
from upgrader.node.host.programs import ProgramResult, ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.gpu_checks import GpuConnections
from upgrader.node.validation.gpu_report import SmiReport, parse_links, parse_report

SMI_SECONDS = 120.0
"""It initializes every GPU that no process uses, which takes seconds for each GPU."""

NO_MODULE, OTHER_MODULE = 9, 18
"""Exit codes of nvidia-smi 535 and 550: no module is loaded; the module has another version than the library."""

_RUN = 'export LD_LIBRARY_PATH="$1"; shift; exec "$@"'


class SmiProgram:
    """nvidia-smi of a driver. Its methods raise OrderFailedError."""

    def __init__(self, tool: Path, library: Path, programs: ProgramRunner) -> None:
        self._tool, self._programs = tool, programs
        self._folders = ":".join(sorted({str(path.parent) for path in library.rglob("libnvidia-ml.so.*")}))

    def run(self, *arguments: str) -> ProgramResult:
        """Run it to its end.

        Raises:
            OrderFailedError: it does not end in time, or by its exit code module and library do not match.
        """
        words = ["/bin/sh", "-c", _RUN, "sh", self._folders, str(self._tool), *arguments]
        try:
            ended = self._programs.run(words, seconds=SMI_SECONDS)
        except ProcessError as error:
            raise OrderFailedError(Reason.DEVICE_FAILED, f"nvidia-smi cannot be run to its end: {error}") from error
        output = ended.one_line[-300:]
        if ended.code == NO_MODULE:
            raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi finds no driver in the kernel: {output}")
        if ended.code == OTHER_MODULE:
            raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi has another version than the module: {output}")
        return ended

    def read_report(self) -> SmiReport:
        """The report about all GPUs.

        Raises:
            OrderFailedError: as `run`, or it fails, or the report cannot be read.
        """
        ended = self.run("-q", "-x")
        if ended.code != 0:
            raise OrderFailedError(
                Reason.DEVICE_FAILED, f"nvidia-smi ended with exit code {ended.code}: {ended.one_line[-300:]}"
            )
        try:
            return parse_report(ended.output)
        except UnreadableError as error:
            raise OrderFailedError(Reason.DEVICE_FAILED, f"the report of nvidia-smi is unreadable: {error}") from error

    def read_connections(self, functions: Iterable[PciDevice]) -> GpuConnections:
        """The NVLinks and PCIe ports of the GPUs. Some versions of nvidia-smi fail on a node without NVLink.

        Raises:
            OrderFailedError: as `run`.
        """
        ended = self.run("nvlink", "-s")
        links = parse_links(ended.output) if ended.code == 0 else {}
        return GpuConnections(links=links, port_widths={device.address: device.port_width for device in functions})


def find_smi(library: Path, programs: ProgramRunner) -> SmiProgram | None:
    """nvidia-smi in the folder of a driver; None if the driver image does not contain it."""
    tool = next(iter(sorted(library.rglob("nvidia-smi"))), None)
    return SmiProgram(tool, library, programs) if tool else None
