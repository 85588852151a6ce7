"""The runtime hook of the `sim` vendor: a CDI specification of the simulated devices for the container runtime.

It also records whether the container runtime supports CDI devices (`runtime.json`), since a runtime without support
ignores them. Without support the device plugin uses mounts or device nodes.
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
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.host.clock import NodeClock
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation import devices
from upgrader.process import atomic_file

KIND = "gpu-upgrader.io/sim"
SPEC_FILE = "gpu-upgrader-sim.json"
RECORD_FILE = "runtime.json"
"""File in RUN_DIRECTORY with a HookRecord."""

CDI_VERSION = "0.5.0"
"""Version of the specification: the first with `hostPath` of device nodes."""

POLL_SECONDS = 2.0
PROGRAM_SECONDS = 10.0
_log = logging.getLogger(__name__)


class HookRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of the hook, with the boot and the pod; `why` is the reason of `cdi`."""

    cdi: bool
    why: str
    boot_id: str = ""
    pod: str = ""  # uid


def read_hook_record(run: Path, driver: str) -> HookRecord | None:
    """The record of the hook on the boot on which this driver was loaded; None if there is none.

    An invalid record counts as none: the device plugin then does not use CDI devices.
    """
    try:
        record = msgspec.json.decode((run / RECORD_FILE).read_bytes(), type=HookRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return record if record.boot_id and record.boot_id == _driver_boot_id(run, driver) else None


def _driver_boot_id(run: Path, driver: str) -> str:
    """The boot ID in the record of the driver, which is that of the kubelet; empty if no driver is loaded."""
    try:
        present = read_loaded_driver(run, driver)
    except OrderFailedError:
        return ""
    return present.boot_id if present is not None else ""


def cdi_specification(count: int, driver: str) -> dict[str, Any]:
    """The CDI specification: the changes of a container for each device."""
    return {
        "cdiVersion": CDI_VERSION,
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": _container_edits(name, driver)}
            for name in map(devices.device_name, range(count))
        ],
    }


def _container_edits(name: str, driver: str) -> dict[str, Any]:
    if driver in devices.CONTROL:
        return {"deviceNodes": [{"path": f"/dev/{name}", "hostPath": devices.CONTROL[driver], "permissions": "rw"}]}
    folder = devices.device_folder(Path(RUN_DIRECTORY))
    return {"mounts": [{"hostPath": str(folder / name), "containerPath": f"/dev/{name}", "options": ["bind", "rw"]}]}


class RuntimeHook:
    """Writes the specification and the record, and repairs them.

    Args:
        folder: folder of CDI specifications, /var/run/cdi of the node.
        run: RUN_DIRECTORY of the node.
        proc: /proc with the processes of the node (hostPID).
        programs: runs the program of the container runtime.
        pod: UID of this pod. A record of another pod is replaced, since the container runtime may have changed.
    """

    def __init__(self, *, folder: Path, run: Path, proc: Path, programs: ProgramRunner, pod: str = "") -> None:
        self._folder, self._run, self._proc, self._programs = folder, run, proc, programs
        self._pod = pod

    def write_files(self, count: int, driver: str) -> HookRecord:
        """Write the files that are missing or differ; returns the record."""
        text = msgspec.json.format(msgspec.json.encode(cdi_specification(count, driver)), indent=1)
        _write_if_changed(self._folder / SPEC_FILE, text)
        record = self.finished_record(driver)
        if record is None:
            serving = self._detect_cdi()
            boot_id = _driver_boot_id(self._run, driver)
            record = HookRecord(cdi=serving.cdi, why=serving.why, boot_id=boot_id, pod=self._pod)
            _write_if_changed(self._run / RECORD_FILE, msgspec.json.encode(record))
            _log.info("%d simulated devices are in the CDI specification; %s", count, serving.why)
        return record

    def finished_record(self, driver: str) -> HookRecord | None:
        """The record of this pod on this boot; None if the hook is not done."""
        record = read_hook_record(self._run, driver)
        is_own = record is not None and record.pod == self._pod and (self._folder / SPEC_FILE).exists()
        return record if is_own else None

    def remove_record(self) -> None:
        """Remove the record when a container starts, since the container runtime may have changed."""
        (self._run / RECORD_FILE).unlink(missing_ok=True)

    def _detect_cdi(self) -> Serving:
        for process in sorted(self._proc.iterdir(), key=lambda path: (len(path.name), path.name)):
            if process.name.isdigit() and (program := _executable_path(process)).rpartition("/")[2] in {
                "containerd",
                "crio",
            }:
                return self._query_runtime(process, program)
        return Serving(False, "no container runtime was found among the processes of the node")

    def _query_runtime(self, process: Path, program: str) -> Serving:
        within = ["chroot", str(process / "root"), program]
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        try:
            version = self._programs.run([*within, "--version"], seconds=PROGRAM_SECONDS).output
            # CRI-O has no such command; its output is not used.
            dump = self._programs.run(
                [*within, *_config_option(words), "config", "dump"], seconds=PROGRAM_SECONDS
            ).output
        except ProcessError as error:
            return Serving(False, f"the program of the container runtime failed: {error}")
        return serves_cdi(version, dump)


def _executable_path(process: Path) -> str:
    """The executable of a process; empty if it cannot be read."""
    try:
        return os.readlink(process / "exe")  # noqa: PTH115 - a path in another file system
    except OSError:
        return ""


def _config_option(words: list[str]) -> list[str]:
    """The option of the container runtime for its configuration file, if it has one."""
    for position, word in enumerate(words):
        if word in {"--config", "-c"} and position + 1 < len(words):
            return ["--config", words[position + 1]]
        if word.startswith("--config="):
            return ["--config", word.partition("=")[2]]
    return []


def _write_if_changed(path: Path, data: bytes) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    atomic_file.write_file(path, data)


def serve_hook(
    hook: RuntimeHook, count: int, driver: str, clock: NodeClock, going: Callable[[], bool] = lambda: True
) -> None:
    """Keep both files up to date until the process ends."""
    hook.remove_record()
    while going():
        hook.write_files(count, driver)
        clock.wait(POLL_SECONDS)
