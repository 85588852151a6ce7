"""Check of NVIDIA's driver on a node: its libraries, each of its GPUs, and the output of nvidia-smi.

No GPU was available: only the libraries, the control device and two exit codes of nvidia-smi were tested.
"""

import os
import re
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import LoadedDriver
from upgrader.node.host.programs import ProgramResult, ProgramRunner
from upgrader.node.host.task_result import OrderFailedError

VENDOR = "nvidia"
LIBRARIES = ("libcuda.so.*", "libnvidia-*.so.*")
SMI_SECONDS = 120.0
"""It initializes every GPU that no process uses, which takes seconds for each GPU."""

NO_MODULE, OTHER_MODULE = 9, 18
"""Exit codes of nvidia-smi 535: no module is loaded; the module has another version than the library."""

_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")
_QUERY = 'LD_LIBRARY_PATH="$1" exec "$2" --query-gpu=uuid,driver_version --format=csv,noheader'


class NodePaths(Struct, frozen=True, kw_only=True):
    """Paths of the node; `library` is the target of `current` of the driver and may not exist."""

    proc: Path
    dev: Path
    library: Path


class _Gpu(Struct, frozen=True, kw_only=True):
    uuid: str
    minor: str


def inspect_gpus(
    node: NodePaths, present: LoadedDriver, programs: ProgramRunner
) -> tuple[dict[str, str], dict[str, str]]:
    """The fault of each GPU by its UUID, empty for a healthy GPU; and facts for the result.

    Raises:
        OrderFailedError: a fault of the libraries or of the driver as a whole.
    """
    facts = {"library": _check_libraries(node.library, present.version)}
    gpus = _list_gpus(node.proc)
    if len(gpus) != present.devices:
        raise OrderFailedError(
            Reason.DEVICE_FAILED, f"the driver has {len(gpus)} GPU(s), and had {present.devices} when it was loaded"
        )
    if fault := _open_fault(node.dev / "nvidiactl"):
        raise OrderFailedError(Reason.DEVICE_FAILED, fault)
    faults = {gpu.uuid: _open_fault(node.dev / f"nvidia{gpu.minor}") for gpu in gpus}
    tool = next(iter(sorted(node.library.rglob("nvidia-smi"))), None)
    if tool is None:
        return faults, facts | {"nvidia-smi": "not on the node"}
    ended = _run_smi(tool, node.library, programs)
    smi_faults = parse_smi_output(ended, version=present.version, gpus=tuple(faults))
    return {uuid: faults[uuid] or smi_faults.get(uuid, "") for uuid in faults}, facts | {"nvidia-smi": str(ended.code)}


def parse_smi_output(ended: ProgramResult, *, version: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """The faults of GPUs in the output of nvidia-smi, by UUID; it must list all GPUs with this driver version.

    Raises:
        OrderFailedError: by the exit code module and library do not match, or no GPU can be used.
    """
    output = ended.one_line[-300:]
    if ended.code == NO_MODULE:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi finds no driver in the kernel: {output}")
    if ended.code == OTHER_MODULE:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi has another version than the module: {output}")
    if not gpus:
        return {}  # without a GPU nvidia-smi fails, for example with exit code 255
    if ended.code != 0:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"nvidia-smi ended with exit code {ended.code}: {output}")
    rows = (line.split(",") for line in ended.output.splitlines() if line.count(",") == 1)
    listed = {uuid.strip(): driver_version.strip() for uuid, driver_version in rows}
    faults = {}
    for uuid in gpus:
        if uuid not in listed:
            faults[uuid] = "nvidia-smi does not list it"
        elif listed[uuid] != version:
            faults[uuid] = f"nvidia-smi reports driver {listed[uuid]}, loaded is {version}"
    return faults


def _check_libraries(folder: Path, version: str) -> str:
    """Check that all libraries on the node have the version of the module; returns a summary for the facts."""
    if not folder.is_symlink() and not folder.exists():
        return "none on the node"
    versions = {
        path.name: match[1]
        for glob in LIBRARIES
        for path in folder.rglob(glob)
        if (match := _VERSION.search(path.name))
    }
    wrong = sorted(name for name, library_version in versions.items() if library_version != version)
    if wrong:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH,
            f"{', '.join(wrong)} in {folder} has another version than the loaded module, {version}",
        )
    if not versions:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"{folder} contains no library of the driver")
    return f"{len(versions)} of {version}"


def _list_gpus(proc: Path) -> list[_Gpu]:
    folder = proc / "driver" / "nvidia" / "gpus"
    return [_read_gpu(entry / "information") for entry in sorted(folder.iterdir())] if folder.is_dir() else []


def _read_gpu(information: Path) -> _Gpu:
    lines = (line.partition(":") for line in information.read_text(encoding="utf-8").splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    try:
        return _Gpu(uuid=fields["GPU UUID"], minor=fields["Device Minor"])
    except KeyError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{information} does not contain {error}") from error


def _open_fault(path: Path) -> str:
    """Open a device, which makes the driver initialize its GPU; returns the fault, empty if there is none."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    return ""


def _run_smi(tool: Path, library: Path, programs: ProgramRunner) -> ProgramResult:
    folders = sorted({str(path.parent) for path in library.rglob("libnvidia-ml.so.*")})
    try:
        return programs.run(["/bin/sh", "-c", _QUERY, "sh", ":".join(folders), str(tool)], seconds=SMI_SECONDS)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"nvidia-smi cannot be run to its end: {error}") from error
