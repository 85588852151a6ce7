"""Settings of the kubelet that an upgrade changes: a drop-in of its configuration, and state files.

A kubelet does not start with a `cpu_manager_state` of another policy or of fewer reserved CPUs. A change therefore
removes this file, on a node without running pods (Kubernetes, "Control CPU Management Policies on the Node"), together
with `memory_manager_state`: both contain the resources of pods. A kubelet with --config-dir reads drop-ins.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.task_result import OrderFailedError
from upgrader.process import atomic_file

DROP_IN = "90-gpu-upgrader.conf"
"""The kubelet reads the files of the folder in the order of their names; the last value of a field wins."""

CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
ROOT_DIR = "/var/lib/kubelet"
ONLINE = "/sys/devices/system/cpu/online"
POLICY = "cpuManagerPolicy"

START_TIME_SECONDS = 2.0
"""Accuracy of the start time of a process, with a margin."""

_SAME_START = 10.0
_HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class SettingsFiles(Struct, frozen=True, kw_only=True):
    """Contents of the drop-in and of the state files, by path on the node; None if a file does not exist."""

    drop_in: str
    contents: dict[str, bytes | None]

    @property
    def settings(self) -> bytes | None:
        """Contents of the drop-in."""
        return self.contents[self.drop_in]

    @property
    def cpu_state(self) -> str:
        """Path of the state file of the CPU manager, which contains its policy."""
        return next(path for path in self.contents if path.endswith(f"/{CPU_STATE}"))

    @property
    def policy(self) -> str:
        """The policy in the CPU state; empty if it contains none."""
        return _state_policy(self.contents[self.cpu_state])

    def with_values(self, values: Mapping[str, str]) -> "SettingsFiles":
        """The files with these settings and without state."""
        drop_in = msgspec.json.encode({**_HEAD, **values}) if values else None
        return SettingsFiles(drop_in=self.drop_in, contents=dict.fromkeys(self.contents) | {self.drop_in: drop_in})


class EndingKubelet(Struct, frozen=True, kw_only=True):
    """A kubelet that was started before the settings were written, and is to end."""

    pid: int
    started: float

    def is_it(self, kubelet: RunningKubelet) -> bool:
        """Whether a running kubelet is this one; its start time is only accurate to about a second."""
        return self.pid == kubelet.pid and abs(self.started - kubelet.started) < _SAME_START


_FLAGS = {
    "cpuManagerPolicy": "cpu-manager-policy",
    "reservedSystemCPUs": "reserved-cpus",
    "topologyManagerPolicy": "topology-manager-policy",
    "topologyManagerScope": "topology-manager-scope",
}
"""Flags of the kubelet by setting; a flag has precedence over the configuration."""


class _State(Struct, frozen=True, rename="camel"):
    policy_name: str = ""


def drop_in_path(kubelet: RunningKubelet) -> str:
    """Path of the drop-in on the node.

    Raises:
        OrderFailedError: the kubelet reads no drop-ins.
    """
    folder = kubelet.option("config-dir")
    if not folder:
        raise OrderFailedError(
            Reason.MISSING,
            "the kubelet runs without --config-dir, so no settings can be added to its configuration: start it with "
            "this option (Kubernetes 1.29 and later), or remove spec.kubelet.settings from the stack",
        )
    return f"{folder.rstrip('/')}/{DROP_IN}"


def describe_settings(values: Mapping[str, str]) -> str:
    """Settings as text, for messages."""
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "no settings of the operator"


def settings_refusal(host: Host, kubelet: RunningKubelet, values: Mapping[str, str]) -> str:
    """Why a running kubelet would not use settings of a drop-in; empty if it would.

    Raises:
        OrderFailedError: it reads no drop-ins.
    """
    drop_in = host.path(drop_in_path(kubelet))
    if not drop_in.parent.is_dir():
        return f"{host.on_node(drop_in.parent)}, the --config-dir of the kubelet, does not exist"
    for name, flag in _FLAGS.items():
        if name in values and kubelet.option(flag):
            return f"the kubelet is started with --{flag}, which has precedence over its configuration: remove the flag"
    for other in sorted(drop_in.parent.glob("*.conf")):
        fields = _read_fields(other) if other.name > DROP_IN else {}
        if conflicts := sorted(fields.keys() & values.keys()):
            return (
                f"{host.on_node(other)} is read after {DROP_IN} and sets {conflicts[0]}: remove the field or rename "
                "the file"
            )
    return _reserved_cpus_fault(host, values.get("reservedSystemCPUs", ""))


def _read_fields(path: Path) -> dict[str, object]:
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise OrderFailedError(
            Reason.MISSING, f"{path.name} in the --config-dir of the kubelet cannot be decoded: {error}"
        ) from error


def _reserved_cpus_fault(host: Host, reserved: str) -> str:
    """Why CPUs cannot be reserved for the system; empty if they can."""
    if not reserved:
        return ""
    online, requested = _parse_cpus(host.path(ONLINE).read_text(encoding="utf-8").strip()), _parse_cpus(reserved)
    if missing := sorted(requested - online):
        return f"reservedCpus {reserved} contains CPU {missing[0]}, which the node does not have"
    return "" if requested < online else f"reservedCpus {reserved} leaves no CPU of the node for pods"


def _parse_cpus(text: str) -> frozenset[int]:
    """Parse a list of CPUs in the format of the kernel: `0-3,8`."""
    parts = (part.partition("-") for part in text.split(",") if part)
    return frozenset(cpu for first, _, last in parts for cpu in range(int(first), int(last or first) + 1))


def read_files(host: Host, kubelet: RunningKubelet) -> SettingsFiles:
    """Read the files of a running kubelet.

    Raises:
        OrderFailedError: it reads no drop-ins.
    """
    root, drop_in = kubelet.option("root-dir", ROOT_DIR).rstrip("/"), drop_in_path(kubelet)
    paths = (drop_in, f"{root}/{CPU_STATE}", f"{root}/{MEMORY_STATE}")
    return SettingsFiles(drop_in=drop_in, contents={path: _read_bytes(host, path) for path in paths})


def reread_files(host: Host, files: SettingsFiles) -> SettingsFiles:
    """Read the same files again."""
    return SettingsFiles(drop_in=files.drop_in, contents={path: _read_bytes(host, path) for path in files.contents})


def write_files(host: Host, files: SettingsFiles) -> None:
    """Write the files, each atomically. The drop-in is the first, since the kubelet creates its state from it."""
    for path, data in files.contents.items():
        _write_or_remove(host.path(path), data)


def repair_state(host: Host, files: SettingsFiles, policy: str) -> None:
    """Restore the state files if a kubelet with another policy wrote them before it ended. No kubelet may run."""
    if policy and _state_policy(_read_bytes(host, files.cpu_state)) not in {"", policy}:
        for path in files.contents.keys() - {files.drop_in}:
            _write_or_remove(host.path(path), files.contents[path])


def may_predate_settings(host: Host, files: SettingsFiles, kubelet: RunningKubelet) -> bool:
    """Whether a kubelet may have started before the current drop-in was written."""
    path = host.path(files.drop_in)
    return path.exists() and kubelet.started < path.stat().st_mtime + START_TIME_SECONDS


def policy_fault(host: Host, files: SettingsFiles, policy: str) -> str:
    """Why the kubelet does not use a policy, by the CPU state, which it writes at its start; empty if it does."""
    state_policy = _state_policy(_read_bytes(host, files.cpu_state))
    return (
        f"{files.cpu_state} has policy {state_policy or 'none'} instead of {policy}"
        if policy and state_policy != policy
        else ""
    )


def _state_policy(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return msgspec.json.decode(data, type=_State).policy_name
    except msgspec.DecodeError:
        return "(unreadable)"


def _read_bytes(host: Host, path: str) -> bytes | None:
    try:
        return host.path(path).read_bytes()
    except FileNotFoundError:
        return None


def _write_or_remove(path: Path, data: bytes | None) -> None:
    if data is not None:
        atomic_file.write_file(path, data)
    elif path.exists():
        path.unlink()
        atomic_file.sync_to_disk(path.parent)
