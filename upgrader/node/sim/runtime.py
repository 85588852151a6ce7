"""The runtime hook of the `sim` vendor: describes the simulated devices to the container runtime as CDI devices.

It says as well whether the node's runtime serves such devices, since one that does not passes them over in silence; the
device plugin goes by that (`runtime.json`) and hands in devices the old way otherwise.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.cdi import Serving, serves_cdi
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.node.driver import devices
from upgrader.node.driver.loaded_driver import loaded
from upgrader.node.host import atomic_file
from upgrader.node.host.clock import Clock
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import OrderFailedError

KIND = "gpu-upgrader.io/sim"
SPEC = "gpu-upgrader-sim.json"
RECORD = "runtime.json"
"""Below RUN_DIRECTORY: a Hooked."""

CDI_VERSION = "0.5.0"
"""Of the specification: the first with `hostPath` of device nodes."""

LOOK_SECONDS = 2.0
ASK_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Hooked(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the hook leaves for those after it: on which boot, and by which of its pods."""

    cdi: bool
    why: str
    boot_id: str = ""
    pod: str = ""  # uid


def hooked(run: Path, driver: str) -> Hooked | None:
    """What the hook left on the boot on which this driver was loaded; None where it has not run there.

    What nobody can read says nothing (doubt holds): the device plugin then hands in devices the old way.
    """
    try:
        found = msgspec.json.decode((run / RECORD).read_bytes(), type=Hooked)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return found if found.boot_id and found.boot_id == _boot_of(run, driver) else None


def _boot_of(run: Path, driver: str) -> str:
    """The boot that the driver's record names, as the kubelet says it; empty where none is loaded."""
    try:
        present = loaded(run, driver)
    except OrderFailedError:
        return ""
    return present.boot_id if present is not None else ""


def specification(count: int, driver: str) -> dict[str, Any]:
    """The CDI specification: what a container gets with each device."""
    return {
        "cdiVersion": CDI_VERSION,
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": _edits(name, driver)} for name in map(devices.name_of, range(count))
        ],
    }


def _edits(name: str, driver: str) -> dict[str, Any]:
    if driver in devices.CONTROL:
        return {"deviceNodes": [{"path": f"/dev/{name}", "hostPath": devices.CONTROL[driver], "permissions": "rw"}]}
    folder = devices.folder(Path(RUN_DIRECTORY))
    return {"mounts": [{"hostPath": str(folder / name), "containerPath": f"/dev/{name}", "options": ["bind", "rw"]}]}


class RuntimeHook:
    """Keeps the specification and the record where they belong.

    Args:
        folder: where the runtime reads specifications, /var/run/cdi of the node.
        run: RUN_DIRECTORY of the node.
        proc: shows the node's processes (hostPID).
        pod: uid of this pod: what another one has left is asked anew, since the runtime may be another by now.
    """

    def __init__(self, *, folder: Path, run: Path, proc: Path, programs: Programs, pod: str = "") -> None:
        self._folder, self._run, self._proc, self._programs = folder, run, proc, programs
        self._pod = pod

    def put(self, count: int, driver: str) -> Hooked:
        """Write what is missing or differs; says what the runtime can."""
        text = msgspec.json.format(msgspec.json.encode(specification(count, driver)), indent=1)
        _keep(self._folder / SPEC, text)
        found = self.done(driver)
        if found is None:
            serving = self._serving()
            boot_id = _boot_of(self._run, driver)
            found = Hooked(cdi=serving.cdi, why=serving.why, boot_id=boot_id, pod=self._pod)
            _keep(self._run / RECORD, msgspec.json.encode(found))
            _log.info("%d simulated devices are described; %s", count, serving.why)
        return found

    def done(self, driver: str) -> Hooked | None:
        """What this pod has left on this boot; None where it has not come so far."""
        found = hooked(self._run, driver)
        there = found is not None and found.pod == self._pod and (self._folder / SPEC).exists()
        return found if there else None

    def forget(self) -> None:
        """A container that starts asks anew: the runtime may be another by now."""
        (self._run / RECORD).unlink(missing_ok=True)

    def _serving(self) -> Serving:
        for process in sorted(self._proc.iterdir(), key=lambda one: (len(one.name), one.name)):
            if process.name.isdigit() and (program := _program(process)).rpartition("/")[2] in {"containerd", "crio"}:
                return self._asked(process, program)
        return Serving(False, "no container runtime was found among the node's processes")

    def _asked(self, process: Path, program: str) -> Serving:
        within = ["chroot", str(process / "root"), program]
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        try:
            version = self._programs.run([*within, "--version"], seconds=ASK_SECONDS).output
            # CRI-O has no such command, and its words are not looked at.
            dump = self._programs.run([*within, *_configured(words), "config", "dump"], seconds=ASK_SECONDS).output
        except ProcessError as error:
            return Serving(False, f"the container runtime did not say what it is: {error}")
        return serves_cdi(version, dump)


def _program(process: Path) -> str:
    """The file that a process runs from; empty where nobody may know."""
    try:
        return os.readlink(process / "exe")  # noqa: PTH115 - a name in another file system, not a path of ours
    except OSError:
        return ""


def _configured(words: list[str]) -> list[str]:
    """The option by which the runtime was told its configuration."""
    for position, word in enumerate(words):
        if word in {"--config", "-c"} and position + 1 < len(words):
            return ["--config", words[position + 1]]
        if word.startswith("--config="):
            return ["--config", word.partition("=")[2]]
    return []


def _keep(path: Path, data: bytes) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    atomic_file.put(path, data)


def serve(hook: RuntimeHook, count: int, driver: str, clock: Clock, going: Callable[[], bool] = lambda: True) -> None:
    """Keep both files for as long as the pod lives."""
    hook.forget()
    while going():
        hook.put(count, driver)
        clock.wait(LOOK_SECONDS)
