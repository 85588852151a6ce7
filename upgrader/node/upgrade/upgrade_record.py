"""The records of a node upgrade on the node, by which a run continues an earlier one that was killed."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.node_fingerprint import NodeFingerprint
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.kubelet_settings import EndingKubelet, SettingsFiles
from upgrader.process import atomic_file

_UPGRADE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UpgradeRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a node upgrade.

    `busy`: it has reported the processes that use the driver. `restoring`: why the previous kubelet is being restored.
    `ending`: kubelets that ran when the settings were written (None: not yet written in this direction). `boot_id`: the
    boot on which a reboot was requested, also after the upgrade has ended. `unit`: the systemd unit of the kubelet, as
    soon as a kubelet may be ended, also after the upgrade has ended. `facts`: facts of the steps before the
    reboot. `result`: the result of the upgrade.
    """

    upgrade: str
    busy: bool = False
    restoring: str = ""
    ending: tuple[EndingKubelet, ...] | None = None
    boot_id: str = ""
    unit: str = ""
    facts: dict[str, str] = {}
    result: OrderResult | None = None


class PreviousKubelet(Struct, frozen=True, kw_only=True):
    """The kubelet that a node upgrade replaced; its binary is in the same folder."""

    upgrade: str
    version: str
    sha256: str


class FetchedKubelet(Struct, frozen=True, kw_only=True):
    """A complete kubelet binary on the node."""

    binary: Path
    sha256: str


class Records:
    """The record of an upgrade, and the kubelets that are kept on the node."""

    def __init__(self, host: Host, upgrade: str) -> None:
        if not _UPGRADE.fullmatch(upgrade):
            raise OrderFailedError(Reason.BAD_ORDER, f"{upgrade!r} is not a valid name of a node upgrade")
        self._upgrade = upgrade
        self._record = host.state / "upgrades" / f"{upgrade}.json"
        self._kubelets = host.state / "kubelet"
        self._digests = host.digests

    @property
    def previous_binary(self) -> Path:
        """Path of the previous kubelet."""
        return self._kubelets / "previous" / "kubelet"

    def read(self) -> UpgradeRecord:
        """The progress of this upgrade; an empty record if it has not run."""
        if not self._record.exists():
            return UpgradeRecord(upgrade=self._upgrade)
        return msgspec.json.decode(self._record.read_bytes(), type=UpgradeRecord)

    def write_busy(self) -> None:
        """Record that the processes that use the driver were reported."""
        self._write(msgspec.structs.replace(self.read(), busy=True))

    def write_restoring(self, cause: str) -> None:
        """Record that this upgrade restores the previous kubelet from now on."""
        self._write(UpgradeRecord(upgrade=self._upgrade, restoring=cause, unit=self.read().unit))

    def write_configured(self, kubelets: Iterable[RunningKubelet]) -> None:
        """Record that the settings are written, and the kubelets that ran at that time."""
        ending = tuple(EndingKubelet(pid=kubelet.pid, started=kubelet.started) for kubelet in kubelets)
        self._write(msgspec.structs.replace(self.read(), ending=ending))

    def write_unit(self, unit: str) -> None:
        """Record the systemd unit of the kubelet."""
        self._write(msgspec.structs.replace(self.read(), unit=unit))

    def keep_settings(self, files: SettingsFiles) -> None:
        """Keep the settings from before this upgrade."""
        atomic_file.write_file(self._settings_path(self._upgrade), msgspec.json.encode(files))

    def read_kept_settings(self, upgrade: str = "") -> SettingsFiles | None:
        """The settings from before this or another upgrade; None if the upgrade changed none."""
        kept = self._settings_path(upgrade or self._upgrade)
        return msgspec.json.decode(kept.read_bytes(), type=SettingsFiles) if kept.exists() else None

    def keep_fingerprint(self, fingerprint: NodeFingerprint) -> None:
        """Keep the fingerprint of the node from before the reboot."""
        atomic_file.write_file(self._fingerprint_path(self._upgrade), msgspec.json.encode(fingerprint))

    def read_fingerprint(self, upgrade: str = "") -> NodeFingerprint | None:
        """The fingerprint from before the reboot of this or another upgrade; None if it kept none."""
        kept = self._fingerprint_path(upgrade or self._upgrade)
        return msgspec.json.decode(kept.read_bytes(), type=NodeFingerprint) if kept.exists() else None

    def write_rebooting(self, boot_id: str, facts: dict[str, str]) -> None:
        """Record that only the reboot remains."""
        self._write(UpgradeRecord(upgrade=self._upgrade, boot_id=boot_id, unit=self.read().unit, facts=facts))

    def write_result(self, result: OrderResult) -> None:
        """Record the result of the upgrade."""
        before = self.read()
        self._write(UpgradeRecord(upgrade=self._upgrade, boot_id=before.boot_id, unit=before.unit, result=result))

    def read_previous(self) -> PreviousKubelet | None:
        """The previous kubelet, of any upgrade; None if there is none or it is incomplete."""
        record = self._kubelets / "previous" / "previous.json"
        if not (record.exists() and self.previous_binary.exists()):
            return None
        previous = msgspec.json.decode(record.read_bytes(), type=PreviousKubelet)
        return previous if self._digests.hex_digest(self.previous_binary) == previous.sha256 else None

    def stage_previous(self, previous: PreviousKubelet) -> FetchedKubelet:
        """Copy the previous kubelet to the folder of fetched ones, since `keep_kubelet` overwrites it."""
        staged = self._kubelets / previous.version / "kubelet"
        self._digests.copy_executable(self.previous_binary, staged)
        atomic_file.write_file(staged.with_name("kubelet.sha256"), f"{previous.sha256}\n".encode())
        return FetchedKubelet(binary=staged, sha256=previous.sha256)

    def keep_kubelet(self, binary: Path, *, version: str, sha256: str) -> None:
        """Keep the kubelet that is replaced next; the record is written after the file is complete."""
        self._digests.copy_executable(binary, self.previous_binary)
        previous = PreviousKubelet(upgrade=self._upgrade, version=version, sha256=sha256)
        atomic_file.write_file(self.previous_binary.with_name("previous.json"), msgspec.json.encode(previous))

    def _settings_path(self, upgrade: str) -> Path:
        return self._record.with_name(f"{upgrade}.kubelet.json")

    def _fingerprint_path(self, upgrade: str) -> Path:
        return self._record.with_name(f"{upgrade}.fingerprint.json")

    def _write(self, record: UpgradeRecord) -> None:
        atomic_file.write_file(self._record, msgspec.json.encode(record))


def find_fetched_kubelet(host: Host, version: str) -> FetchedKubelet | None:
    """The kubelet that an artifact image copied to the node; None if there is none.

    Raises:
        OrderFailedError: the checksum of the artifact does not match.
    """
    binary = host.state / "kubelet" / version / "kubelet"
    checksum = binary.with_name("kubelet.sha256")
    if not (binary.exists() and checksum.exists()):
        return None
    expected = checksum.read_text(encoding="utf-8").split()[:1]
    actual = host.digests.hex_digest(binary)
    if expected != [actual]:
        raise OrderFailedError(
            Reason.CHECKSUM_MISMATCH,
            f"{host.on_node(binary)} has sha256 {actual}, its checksum file has {' '.join(expected) or 'nothing'}; "
            "remove the folder, and it is copied again",
        )
    return FetchedKubelet(binary=binary, sha256=actual)
