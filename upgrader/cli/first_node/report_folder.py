"""The folder of a report. Everything outside of `private` is redacted before it is written."""

import fcntl
import gzip
import hashlib
import io
import os
import re
import secrets
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from upgrader.core import untrusted
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.core.first_node.journal import VERSION, PhaseJournal
from upgrader.core.first_node.phases import PHASES
from upgrader.core.first_node.redaction import Redactor
from upgrader.core.first_node.report_page import PhaseResult, render_report
from upgrader.core.first_node.report_rows import measured_csv, missed_csv
from upgrader.process.atomic_file import write_file

PRIVATE, JOURNAL, LOCK = "private", "journal.json", "lock"
ARCHIVE = "report.tar.gz"
KEY_BYTES = 16

_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}(?:\.[a-z0-9-]{1,20}){1,3}")
_RESULT = "result.json"


class ReportFolder:
    """The files of a report. `private` has the journal: the names as they are, and the key of the pseudonyms."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder: two runs at the same time would each put back what the other is doing.

        Raises:
            ConfigurationError: another run holds it, or it cannot be written.
        """
        try:
            (self.path / PRIVATE).mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / PRIVATE / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written", details=str(error)) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise ConfigurationError(f"another run uses {self.path}", resolution="Wait until it has ended.") from error
        finally:
            os.close(handle)

    def read_journal(self, node: str, cluster: str) -> PhaseJournal:
        """The journal of an earlier run, or a new one.

        Raises:
            ConfigurationError: it is of another node or cluster, or cannot be read.
        """
        path = self.path / PRIVATE / JOURNAL
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return PhaseJournal(node=node, cluster=cluster, key=secrets.token_hex(KEY_BYTES))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read", details=str(error)) from error
        try:
            journal = untrusted.decode_json(raw, PhaseJournal, untrusted.FILE_BYTES)
            bytes.fromhex(journal.key)
        except (UnreadableError, ValueError) as error:
            raise ConfigurationError(f"{path} is no journal of this release", details=str(error)) from error
        if journal.version != VERSION:
            raise ConfigurationError(f"{path} is a journal of version {journal.version}, not {VERSION}")
        if (journal.node, journal.cluster) != (node, cluster):
            raise ConfigurationError(
                f"{self.path} is the report of node {journal.node} of another cluster or of another node",
                resolution="Use a folder for each node.",
            )
        return journal

    def write_journal(self, journal: PhaseJournal) -> None:
        """Write the journal; it is on disk when this returns."""
        write_file(self.path / PRIVATE / JOURNAL, msgspec.json.format(msgspec.json.encode(journal)) + b"\n")

    def read_results(self) -> dict[int, PhaseResult]:
        """The results of all phases that have run, as they were written."""
        found = {}
        for phase in PHASES:
            path = self.path / phase.folder / _RESULT
            raw = path.read_bytes() if path.is_file() else None
            result = untrusted.read_json(raw, PhaseResult)
            if result is not None:
                found[phase.number] = result
        return found

    def read_files(self, number: int, names: Iterable[str]) -> dict[str, str]:
        """Texts of files of a phase that has run; those that do not exist are left out."""
        paths = (self.path / PHASES[number].folder / name for name in names)
        return {path.name: path.read_text(encoding="utf-8") for path in paths if path.is_file()}

    def write_result(self, number: int, result: PhaseResult, redactor: Redactor) -> None:
        """Write the result of a phase, and its files."""
        folder = self.path / PHASES[number].folder
        for name, text in result.files.items():
            _write_text(folder / _checked_name(name), redactor.redact_text(text))
        for name, value in {**result.documents, _RESULT: _without_contents(result)}.items():
            _write_json(folder / _checked_name(name), value, redactor)

    def redact_again(self, redactor: Redactor) -> None:
        """Replace names that became known after files were written."""
        for path in (path for phase in PHASES for path in sorted((self.path / phase.folder).glob("*"))):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".json":
                _write_json(path, msgspec.json.decode(text), redactor)
            else:
                _write_text(path, redactor.redact_text(text))

    def write_summary(self, journal: PhaseJournal, redactor: Redactor) -> None:
        """Write report.md, report.json, measured.csv and missed.csv from the results of all phases."""
        results = self.read_results()
        texts = {
            "report.md": render_report(journal, results),
            "measured.csv": measured_csv(row for number in sorted(results) for row in results[number].measured),
            "missed.csv": missed_csv(row for number in sorted(results) for row in results[number].missed),
        }
        for name, text in texts.items():
            _write_text(self.path / name, redactor.redact_text(text))
        value = {"phases": journal.entries, "results": {str(key): results[key] for key in results}}
        _write_json(self.path / "report.json", value, redactor)
        self._write_archive(("report.json", *texts))

    def _write_archive(self, names: Iterable[str]) -> None:
        """Write report.tar.gz and its checksum: everything but `private`, and nothing that others put there."""
        folders = [phase.folder for phase in PHASES if (self.path / phase.folder).is_dir()]
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            for name in sorted((*names, *folders)):
                archive.add(self.path / name, name, filter=_without_owner)
        write_file(self.path / ARCHIVE, packed.getvalue())
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        _write_text(self.path / f"{ARCHIVE}.sha256", f"{digest}  {ARCHIVE}\n")


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without the user and the times of this machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _without_contents(result: PhaseResult) -> PhaseResult:
    return msgspec.structs.replace(
        result, files=dict.fromkeys(result.files, ""), documents=dict.fromkeys(result.documents)
    )


def _checked_name(name: str) -> str:
    """A name of a file, which may be from a node.

    Raises:
        ConfigurationError: it is no plain name.
    """
    if not _FILE_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is not a name of a file of the report")
    return name


def _write_json(path: Path, value: object, redactor: Redactor) -> None:
    redacted = redactor.redact_value(msgspec.to_builtins(value))
    _write_text(path, msgspec.json.format(msgspec.json.encode(redacted), indent=2).decode() + "\n")


def _write_text(path: Path, text: str) -> None:
    write_file(path, text.encode("utf-8", errors="replace"))
