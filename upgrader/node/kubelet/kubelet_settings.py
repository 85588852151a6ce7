"""Settings of the kubelet that an upgrade changes: our drop-in of its configuration, and state that fits it no more.

A kubelet does not start on a `cpu_manager_state` of another policy, or of fewer reserved CPUs, so this file goes with a
change, on a node that was emptied before (Kubernetes, "Control CPU Management Policies on the Node"); with it goes
`memory_manager_state`, since both say which pod has what. A drop-in is read where the kubelet runs with --config-dir.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host import atomic_file
from upgrader.node.host.host import Host
from upgrader.node.host.processes import Running
from upgrader.node.host.task_result import OrderFailedError

DROP_IN = "90-gpu-upgrader.conf"
"""Files of the folder are read by name, and the last one that says something counts."""

CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
ROOT_DIR = "/var/lib/kubelet"
ONLINE = "/sys/devices/system/cpu/online"
POLICY = "cpuManagerPolicy"

CLOCK_SECONDS = 2.0
"""What the start of a process is known to, and a bit."""

_SAME_START = 10.0
_HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class Files(Struct, frozen=True, kw_only=True):
    """Contents of the files that settings are made of, by path on the node; None: it is not there."""

    drop_in: str
    contents: dict[str, bytes | None]

    @property
    def settings(self) -> bytes | None:
        """The drop-in's contents."""
        return self.contents[self.drop_in]

    @property
    def cpu_state(self) -> str:
        """Path of the file in which the kubelet says by which policy it gives CPUs away."""
        return next(path for path in self.contents if path.endswith(f"/{CPU_STATE}"))

    @property
    def policy(self) -> str:
        """The policy of the CPU state; empty where that says none."""
        return _policy(self.contents[self.cpu_state])

    def of(self, values: Mapping[str, str]) -> "Files":
        """The same with these settings, and without the state of others."""
        drop_in = msgspec.json.encode({**_HEAD, **values}) if values else None
        return Files(drop_in=self.drop_in, contents=dict.fromkeys(self.contents) | {self.drop_in: drop_in})


class Ending(Struct, frozen=True, kw_only=True):
    """A kubelet that was started before the settings were written."""

    pid: int
    started: float

    def is_it(self, kubelet: Running) -> bool:
        """Whether a kubelet that runs is this one; the time of its start is only known to about a second."""
        return self.pid == kubelet.pid and abs(self.started - kubelet.started) < _SAME_START


_FLAGS = {
    "cpuManagerPolicy": "cpu-manager-policy",
    "reservedSystemCPUs": "reserved-cpus",
    "topologyManagerPolicy": "topology-manager-policy",
    "topologyManagerScope": "topology-manager-scope",
}
"""Of the kubelet; each wins over what its configuration says."""


class _State(Struct, frozen=True, rename="camel"):
    policy_name: str = ""


def drop_in_of(kubelet: Running) -> str:
    """Path of our drop-in on the node.

    Raises:
        OrderFailedError: the kubelet reads none.
    """
    folder = kubelet.option("config-dir")
    if not folder:
        raise OrderFailedError(
            Reason.MISSING,
            "the kubelet runs without --config-dir, so no settings can be added to its configuration: start it with "
            "one (Kubernetes 1.29 and later), or leave spec.kubelet.settings out of the stack",
        )
    return f"{folder.rstrip('/')}/{DROP_IN}"


def shown(values: Mapping[str, str]) -> str:
    """Settings for people."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "no settings of ours"


def refusal(host: Host, kubelet: Running, values: Mapping[str, str]) -> str:
    """Why a kubelet that runs would not go by settings of ours; empty where it would.

    Raises:
        OrderFailedError: it reads no drop-in.
    """
    ours = host.path(drop_in_of(kubelet))
    if not ours.parent.is_dir():
        return f"the folder of the kubelet's --config-dir, {host.on_node(ours.parent)}, is not there"
    for name, flag in _FLAGS.items():
        if name in values and kubelet.option(flag):
            return f"the kubelet is started with --{flag}, which wins over its configuration: take that away"
    for other in sorted(ours.parent.glob("*.conf")):
        said = _fields(other) if other.name > DROP_IN else {}
        if found := sorted(said.keys() & values.keys()):
            return f"{host.on_node(other)} is read after {DROP_IN} and sets {found[0]}: take that out, or rename it"
    return _beyond(host, values.get("reservedSystemCPUs", ""))


def _fields(path: Path) -> dict[str, object]:
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise OrderFailedError(
            Reason.MISSING, f"{path.name} of the kubelet's --config-dir is not read: {error}"
        ) from error


def _beyond(host: Host, reserved: str) -> str:
    """What is wrong with CPUs that are to be kept for the system."""
    if not reserved:
        return ""
    here, wanted = _cpus(host.path(ONLINE).read_text(encoding="utf-8").strip()), _cpus(reserved)
    if missing := sorted(wanted - here):
        return f"reservedCpus {reserved} names CPU {missing[0]}, which the node does not have"
    return "" if wanted < here else f"reservedCpus {reserved} leaves no CPU of the node for pods"


def _cpus(text: str) -> frozenset[int]:
    """A list of CPUs as the kernel writes it: `0-3,8`."""
    parts = (one.partition("-") for one in text.split(",") if one)
    return frozenset(cpu for first, _, last in parts for cpu in range(int(first), int(last or first) + 1))


def present(host: Host, kubelet: Running) -> Files:
    """The files as they are, where the kubelet that runs has them.

    Raises:
        OrderFailedError: it reads no drop-in.
    """
    root, drop_in = kubelet.option("root-dir", ROOT_DIR).rstrip("/"), drop_in_of(kubelet)
    paths = (drop_in, f"{root}/{CPU_STATE}", f"{root}/{MEMORY_STATE}")
    return Files(drop_in=drop_in, contents={path: _read(host, path) for path in paths})


def again(host: Host, files: Files) -> Files:
    """The same files as they are now."""
    return Files(drop_in=files.drop_in, contents={path: _read(host, path) for path in files.contents})


def put(host: Host, files: Files) -> None:
    """Make the files so; each is whole at any time. The drop-in comes first, as the state is made anew by it."""
    for path, data in files.contents.items():
        _write(host.path(path), data)


def refit(host: Host, files: Files, policy: str) -> None:
    """Put state right that a kubelet under another policy wrote before it ended; while no kubelet runs."""
    if policy and _policy(_read(host, files.cpu_state)) not in {"", policy}:
        for path in files.contents.keys() - {files.drop_in}:
            _write(host.path(path), files.contents[path])


def written_after(host: Host, files: Files, kubelet: Running) -> bool:
    """Whether a kubelet may have started before the drop-in was written that is there."""
    path = host.path(files.drop_in)
    return path.exists() and kubelet.started < path.stat().st_mtime + CLOCK_SECONDS


def fault(host: Host, files: Files, policy: str) -> str:
    """What shows that the kubelet does not go by a policy: it writes its own into the CPU state at its start."""
    said = _policy(_read(host, files.cpu_state))
    return f"{files.cpu_state} says policy {said or 'none at all'}, not {policy}" if policy and said != policy else ""


def _policy(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return msgspec.json.decode(data, type=_State).policy_name
    except msgspec.DecodeError:
        return "(unreadable)"


def _read(host: Host, path: str) -> bytes | None:
    try:
        return host.path(path).read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes | None) -> None:
    if data is not None:
        atomic_file.put(path, data)
    elif path.exists():
        path.unlink()
        atomic_file.sync(path.parent)
