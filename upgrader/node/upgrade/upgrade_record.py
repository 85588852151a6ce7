"""What a node upgrade writes down on the node, so that the next run of it goes on where the last one was killed."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.node.host import atomic_file
from upgrader.node.host.host import Host
from upgrader.node.host.processes import Running
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.kubelet_settings import Ending, Files

_UPGRADE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UpgradeRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a node upgrade came.

    `busy`: it has said who holds the driver. `restoring` says why the old kubelet is being put back, `ending` which
    kubelets ran when its settings had been written (None: not yet on this way), `boot_id` on which boot
    a reboot was ordered (also of one that has ended), `facts` what was done before it, `result` how the upgrade ended.
    """

    upgrade: str
    busy: bool = False
    restoring: str = ""
    ending: tuple[Ending, ...] | None = None
    boot_id: str = ""
    facts: dict[str, str] = {}
    result: OrderResult | None = None


class Previous(Struct, frozen=True, kw_only=True):
    """The kubelet that a node upgrade replaced; its binary lies beside this record."""

    upgrade: str
    version: str
    sha256: str


class Fetched(Struct, frozen=True, kw_only=True):
    """A kubelet that is on the node and whole."""

    binary: Path
    sha256: str


class Records:
    """The records of one upgrade and the kubelets kept on the node."""

    def __init__(self, host: Host, upgrade: str) -> None:
        if not _UPGRADE.fullmatch(upgrade):
            raise OrderFailedError(Reason.BAD_ORDER, f"{upgrade!r} is no name for a node upgrade")
        self._upgrade = upgrade
        self._record = host.state / "upgrades" / f"{upgrade}.json"
        self._kubelets = host.state / "kubelet"
        self._digests = host.digests

    @property
    def previous_binary(self) -> Path:
        """The kubelet before the last swap."""
        return self._kubelets / "previous" / "kubelet"

    def read(self) -> UpgradeRecord:
        """How far this upgrade came; nothing at all where it never ran."""
        if not self._record.exists():
            return UpgradeRecord(upgrade=self._upgrade)
        return msgspec.json.decode(self._record.read_bytes(), type=UpgradeRecord)

    def busy(self) -> None:
        """The driver is in use, and people are told by whom."""
        self._write(UpgradeRecord(upgrade=self._upgrade, busy=True))

    def restoring(self, why: str) -> None:
        """From now on this upgrade only puts the old kubelet back."""
        self._write(UpgradeRecord(upgrade=self._upgrade, restoring=why))

    def configured(self, kubelets: Iterable[Running]) -> None:
        """The settings are written; these kubelets ran then, so they may not have read them."""
        ending = tuple(Ending(pid=one.pid, started=one.started) for one in kubelets)
        self._write(UpgradeRecord(upgrade=self._upgrade, restoring=self.read().restoring, ending=ending))

    def keep_settings(self, files: Files) -> None:
        """Keep the settings as they were before this upgrade."""
        atomic_file.put(self._settings(self._upgrade), msgspec.json.encode(files))

    def kept_settings(self, upgrade: str = "") -> Files | None:
        """The settings before this upgrade, or before another; None where that changed none."""
        kept = self._settings(upgrade or self._upgrade)
        return msgspec.json.decode(kept.read_bytes(), type=Files) if kept.exists() else None

    def rebooting(self, boot_id: str, facts: dict[str, str]) -> None:
        """All else is done; from now on this upgrade only leaves this boot."""
        self._write(UpgradeRecord(upgrade=self._upgrade, boot_id=boot_id, facts=facts))

    def ended(self, result: OrderResult) -> None:
        """The upgrade is over, with this result."""
        self._write(UpgradeRecord(upgrade=self._upgrade, boot_id=self.read().boot_id, result=result))

    def previous(self) -> Previous | None:
        """The kubelet before the last swap, of whichever upgrade; None where none was kept whole."""
        record = self._kubelets / "previous" / "previous.json"
        if not (record.exists() and self.previous_binary.exists()):
            return None
        previous = msgspec.json.decode(record.read_bytes(), type=Previous)
        return previous if self._digests.of(self.previous_binary) == previous.sha256 else None

    def stage_previous(self, previous: Previous) -> Fetched:
        """The kept kubelet as if it had been fetched, because the place where it is kept is needed for the next one."""
        staged = self._kubelets / previous.version / "kubelet"
        self._digests.copied(self.previous_binary, staged)
        atomic_file.put(staged.with_name("kubelet.sha256"), f"{previous.sha256}\n".encode())
        return Fetched(binary=staged, sha256=previous.sha256)

    def keep(self, binary: Path, *, version: str, sha256: str) -> None:
        """Keep the kubelet that is about to be replaced; the record comes last and never speaks of half a file."""
        self._digests.copied(binary, self.previous_binary)
        previous = Previous(upgrade=self._upgrade, version=version, sha256=sha256)
        atomic_file.put(self.previous_binary.with_name("previous.json"), msgspec.json.encode(previous))

    def _settings(self, upgrade: str) -> Path:
        return self._record.with_name(f"{upgrade}.kubelet.json")

    def _write(self, record: UpgradeRecord) -> None:
        atomic_file.put(self._record, msgspec.json.encode(record))


def fetched(host: Host, version: str) -> Fetched | None:
    """The kubelet that an artifact image left on the node; None where there is none.

    Raises:
        OrderFailedError: it is not the file that the artifact's checksum speaks of.
    """
    binary = host.state / "kubelet" / version / "kubelet"
    checksum = binary.with_name("kubelet.sha256")
    if not (binary.exists() and checksum.exists()):
        return None
    wanted = checksum.read_text(encoding="utf-8").split()[:1]
    actual = host.digests.of(binary)
    if wanted != [actual]:
        raise OrderFailedError(
            Reason.CHECKSUM_MISMATCH,
            f"{host.on_node(binary)} has sha256 {actual}, its checksum file says {' '.join(wanted) or 'nothing'}; "
            "remove the folder, it is fetched again",
        )
    return Fetched(binary=binary, sha256=actual)
