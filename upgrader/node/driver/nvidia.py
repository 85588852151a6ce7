"""NVIDIA's driver on a node: its libraries, its GPUs one by one, and what nvidia-smi says. Without a GPU, as we have
none, the libraries, the control device and two of nvidia-smi's answers are what was seen to work.
"""

import os
import re
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import Loaded
from upgrader.node.host.programs import Ended, Programs
from upgrader.node.host.task_result import OrderFailedError

VENDOR = "nvidia"
LIBRARIES = ("libcuda.so.*", "libnvidia-*.so.*")
SMI_SECONDS = 120.0
"""It initialises every GPU that nobody holds, which takes seconds for each of a large node."""

NO_MODULE, OTHER_MODULE = 9, 18
"""Exit codes of nvidia-smi, seen with 535: no module is loaded; the module is of another version than the library."""

_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")
_QUERY = 'LD_LIBRARY_PATH="$1" exec "$2" --query-gpu=uuid,driver_version --format=csv,noheader'


class Node(Struct, frozen=True, kw_only=True):
    """Where things are; `library` is the folder that the driver's `current` leads to, which need not be there."""

    proc: Path
    dev: Path
    library: Path


class _Gpu(Struct, frozen=True, kw_only=True):
    uuid: str
    minor: str


def inspect(node: Node, present: Loaded, programs: Programs) -> tuple[dict[str, str], dict[str, str]]:
    """What is wrong with each GPU by its UUID, and facts for people.

    Raises:
        OrderFailedError: the libraries or the driver as a whole are not what they should be.
    """
    facts = {"library": _library(node.library, present.version)}
    gpus = _gpus(node.proc)
    if len(gpus) != present.devices:
        raise OrderFailedError(
            Reason.DEVICE_FAILED, f"the driver shows {len(gpus)} GPU(s), it was loaded with {present.devices}"
        )
    if fault := _opens(node.dev / "nvidiactl"):
        raise OrderFailedError(Reason.DEVICE_FAILED, fault)
    found = {one.uuid: _opens(node.dev / f"nvidia{one.minor}") for one in gpus}
    tool = next(iter(sorted(node.library.rglob("nvidia-smi"))), None)
    if tool is None:
        return found, facts | {"nvidia-smi": "not on the node"}
    ended = _ask(tool, node.library, programs)
    said = judge(ended, version=present.version, gpus=tuple(found))
    return {uuid: found[uuid] or said.get(uuid, "") for uuid in found}, facts | {"nvidia-smi": str(ended.code)}


def judge(ended: Ended, *, version: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """What nvidia-smi finds wrong with each GPU, by UUID; it must list all of them with this driver version.

    Raises:
        OrderFailedError: its exit code says that module and library are not one driver, or that no GPU can be used.
    """
    words = " ".join(ended.output.split())[-300:]
    if ended.code == NO_MODULE:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi finds no driver in the kernel: {words}")
    if ended.code == OTHER_MODULE:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"nvidia-smi is of another version than the module: {words}")
    if not gpus:
        return {}  # without a GPU it fails, seen as 255, and there is nothing that it could say of any
    if ended.code != 0:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"nvidia-smi ended with {ended.code}: {words}")
    rows = (line.split(",") for line in ended.output.splitlines() if line.count(",") == 1)
    listed = {uuid.strip(): said.strip() for uuid, said in rows}
    faults = {}
    for uuid in gpus:
        if uuid not in listed:
            faults[uuid] = "nvidia-smi does not list it"
        elif listed[uuid] != version:
            faults[uuid] = f"nvidia-smi says driver {listed[uuid]}, loaded is {version}"
    return faults


def _library(folder: Path, version: str) -> str:
    """What to say of the libraries on the node, all of which must be of the module's version."""
    if not folder.is_symlink() and not folder.exists():
        return "none on the node"
    found = {
        path.name: seen[1] for glob in LIBRARIES for path in folder.rglob(glob) if (seen := _VERSION.search(path.name))
    }
    wrong = sorted(name for name, said in found.items() if said != version)
    if wrong:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{', '.join(wrong)} in {folder} is not of the loaded module {version}"
        )
    if not found:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, f"{folder} holds no library of the driver")
    return f"{len(found)} of {version}"


def _gpus(proc: Path) -> list[_Gpu]:
    folder = proc / "driver" / "nvidia" / "gpus"
    return [_gpu(entry / "information") for entry in sorted(folder.iterdir())] if folder.is_dir() else []


def _gpu(information: Path) -> _Gpu:
    lines = (line.partition(":") for line in information.read_text(encoding="utf-8").splitlines())
    said = {name.strip(): value.strip() for name, _, value in lines}
    try:
        return _Gpu(uuid=said["GPU UUID"], minor=said["Device Minor"])
    except KeyError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{information} does not say its {error}") from error


def _opens(path: Path) -> str:
    """Why a device cannot be opened, which makes the driver set up its GPU; empty when it can."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    return ""


def _ask(tool: Path, library: Path, programs: Programs) -> Ended:
    places = sorted({str(path.parent) for path in library.rglob("libnvidia-ml.so.*")})
    try:
        return programs.run(["/bin/sh", "-c", _QUERY, "sh", ":".join(places), str(tool)], seconds=SMI_SECONDS)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"nvidia-smi does not end: {error}") from error
