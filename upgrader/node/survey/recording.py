"""Outputs of programs and files of a node, as they are: what later runs are compared with. Nothing is changed.

nvidia-smi runs only if the driver is loaded: otherwise it would load it.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ProcessError, UpgraderError
from upgrader.core.node_protocol.recordings import LONGEST_OUTPUT, LONGEST_RECORD, RecordedOutput
from upgrader.node.driver.device_holders import find_device_holders
from upgrader.node.driver.foreign_driver import DEVICES, MODULES, removal_order
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode
from upgrader.node.validation.smi_program import SMI_SECONDS, find_smi

PROGRAM_SECONDS = 30.0
ON_NODE = ("nsenter", "-t", "1", "-m")
_SMI = {
    "nvidia-smi-q-x.xml": ("-q", "-x"),
    "nvidia-smi-topo.txt": ("topo", "-m"),
    "nvidia-smi-nvlink.txt": ("nvlink", "-s"),
}
_PROGRAMS = {
    "dmesg.txt": ("dmesg",),
    "systemd-units.txt": ("systemctl", "list-units", "--type=service", "--all", "--no-pager", "--plain"),
}
_FILES = {
    "cmdline.txt": "proc/cmdline",
    "modules.txt": "proc/modules",
    "os-release.txt": "etc/os-release",
    "nvidia-params.txt": "proc/driver/nvidia/params",
    "nvidia-version.txt": "proc/driver/nvidia/version",
}
_PCI_FILES = ("vendor", "device", "class", "current_link_width", "current_link_speed", "max_link_width", "numa_node")
_PORT_FILES = ("state", "rate", "link_layer")


class _Recording(Struct, frozen=True, kw_only=True):
    """An output: `source` for readers, and how it is read."""

    source: str
    read: Callable[[], ProgramResult | str]
    limit: float = 0.0


def record_outputs(node: SurveyedNode) -> Iterator[RecordedOutput]:
    """Each output by itself: one that cannot be read hides no other."""
    left = LONGEST_RECORD
    for name, recording in _list_recordings(node).items():
        output = _record_one(name, recording, min(left, LONGEST_OUTPUT))
        left -= len(output.text)
        yield output


def read_private_names(node: SurveyedNode) -> tuple[str, ...]:
    """Names that outputs may contain and that only the node knows: its own, its domains, servers of its file systems.

    The report replaces them.
    """
    host = read_optional(node.host.path("/etc/hostname"))
    domains = [
        word
        for line in read_optional(node.host.path("/etc/resolv.conf")).splitlines()
        if line.startswith(("search ", "domain "))
        for word in line.split()[1:]
    ]
    mounts = read_optional(node.host.proc / "1/mounts").splitlines()
    servers = [server for line in mounts for server, colon, _ in [line.partition(":/")] if colon and " " not in server]
    aliases = [word for line in read_optional(node.host.path("/etc/hosts")).splitlines() for word in line.split()[1:]]
    public = {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-allrouters"}
    known = {host, host.partition(".")[0], *domains, *servers, *aliases} - public
    return tuple(sorted(name for name in known if name and "#" not in name))


def _list_recordings(node: SurveyedNode) -> dict[str, _Recording]:
    vendor = node.scope.vendor
    files = {
        name: _Recording(source=f"/{path}", read=partial(read_optional, node.host.root / path))
        for name, path in _FILES.items()
    }
    programs = {
        name: _Recording(source=" ".join(words), read=partial(_run_on_node, node, *words), limit=PROGRAM_SECONDS)
        for name, words in _PROGRAMS.items()
    }
    own = {
        "holders.txt": _Recording(
            source="processes that upgrader finds",
            read=lambda: "\n".join(map(str, find_device_holders(node.host.proc, DEVICES[vendor]))),
        ),
        "removal-order.txt": _Recording(
            source="modules in the order in which upgrader would remove them",
            read=lambda: "\n".join(removal_order(node.system, MODULES[vendor])),
        ),
        "pci.txt": _Recording(source="/sys/bus/pci/devices", read=partial(_read_folders, node, "bus/pci/devices/*")),
        "ib-ports.txt": _Recording(
            source="/sys/class/infiniband", read=partial(_read_folders, node, "class/infiniband/*/ports/*")
        ),
        "fuser.txt": _Recording(
            source=f"fuser -v {DEVICES[vendor]}*",
            read=partial(_run_fuser, node, DEVICES[vendor]),
            limit=PROGRAM_SECONDS,
        ),
    }
    smi = {
        name: _Recording(
            source=" ".join(("nvidia-smi", *words)), read=partial(_run_smi, node, *words), limit=SMI_SECONDS
        )
        for name, words in _SMI.items()
    }
    return {**files, **own, **smi, **programs}


def _record_one(name: str, recording: _Recording, longest: int) -> RecordedOutput:
    begin = time.monotonic()
    result: ProgramResult | str = ""
    absent = ""
    try:
        result = recording.read()
    except (OSError, ValueError, ProcessError, UpgraderError) as error:
        absent = str(error)[:300] or type(error).__name__
    text, code = (result.output, result.code) if isinstance(result, ProgramResult) else (result, None)
    kept = text[-longest:] if longest > 0 else ""
    return RecordedOutput(
        name=name,
        source=recording.source,
        text=kept,
        code=code,
        seconds=round(time.monotonic() - begin, 3),
        limit=recording.limit,
        cut=len(kept) < len(text),
        absent=absent or ("" if text else "it is empty or does not exist"),
    )


def _run_on_node(node: SurveyedNode, *words: str) -> ProgramResult:
    return node.programs.run((*ON_NODE, *words), seconds=PROGRAM_SECONDS)


def _run_fuser(node: SurveyedNode, prefix: str) -> ProgramResult | str:
    devices = sorted(node.host.on_node(path) for path in node.host.root.glob(f"{prefix.lstrip('/')}*"))
    return _run_on_node(node, "fuser", "-v", *devices) if devices else ""


def _run_smi(node: SurveyedNode, *words: str) -> ProgramResult:
    """nvidia-smi of the driver of upgrader, of NVIDIA's driver container, or of the node."""
    if not (node.system / "module" / MODULES[node.scope.vendor]).is_dir():
        raise ValueError("the driver is not loaded")
    smi = find_smi(node.host.state / "drivers" / node.scope.vendor / "current", node.programs)
    if smi is not None:
        return smi.run(*words)
    container = "/run/nvidia/driver"
    inside = ("chroot", container) if (node.host.root / container.lstrip("/") / "usr/bin/nvidia-smi").exists() else ()
    return node.programs.run((*ON_NODE, *inside, "nvidia-smi", *words), seconds=SMI_SECONDS)


def _read_folders(node: SurveyedNode, pattern: str) -> str:
    """The values of the files of sysfs folders, one line for each folder."""
    return "\n".join(
        " ".join((str(folder.relative_to(node.system)), *_read_values(folder)))
        for folder in sorted(node.system.glob(pattern))
    )


def _read_values(folder: Path) -> Iterator[str]:
    for name in (*_PCI_FILES, *_PORT_FILES):
        try:
            value = read_optional(folder / name)
        except OSError:
            continue  # a device in a sleep state does not answer
        if value:
            yield f"{name}={value}"
