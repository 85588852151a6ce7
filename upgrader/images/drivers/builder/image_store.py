"""Built images in one OCI layout, found by identity or build key; any tool that reads layouts can carry it on.

index.json lists every image with its build key; the newest of an identity has its tag. Beside what the specification
knows lies `upgrader/`: what was found out about each image, and why others could not be built.
https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import Identity, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.layout import Descriptor, Layout
from upgrader.images.trust import BUILD_KEY
from upgrader.process.places import Progress, locked, write_whole

REF_NAME = "org.opencontainers.image.ref.name"
_Kind = TypeVar("_Kind")
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'


class Record(Struct, frozen=True, kw_only=True):
    """What is known of a built image: `seconds` is how long building and checking took."""

    identity: Identity
    build_key: str
    digest: str
    seconds: float
    verdicts: tuple[Verdict, ...]


class _Entry(Descriptor, frozen=True, kw_only=True):
    annotations: Mapping[str, str] = {}


class _Index(Struct, frozen=True, kw_only=True, rename="camel"):
    manifests: tuple[_Entry, ...] = ()
    schema_version: int = 2


def _decoded(path: Path, kind: type[_Kind], progress: Progress) -> _Kind | None:
    """A file of ours; one that cannot be read counts as absent, since the next build writes it anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        progress(f"{path} cannot be read and counts as absent: {error}")
        return None


class Shelf:
    """Images in a folder. Whoever writes holds a lock; blobs come before the index that names them.

    Args:
        folder: of the layout.
        progress: told of what lies there and cannot be used.
    """

    def __init__(self, folder: Path, progress: Progress = lambda _line: None) -> None:
        self.folder = folder
        self._progress = progress
        self._records = folder / "upgrader/records"

    def record(self, key: str) -> Record | None:
        """What was built under a build key; None where nothing was, or it is no longer whole."""
        record = _decoded(self._records / f"{key}.json", Record, self._progress)
        if record is None or all(one.digest != record.digest for one in self._index().manifests):
            return None
        if lacking := self._lacking(record.digest):
            self._progress(f"{record.identity}: taken for not built, as {lacking}")
            return None
        return record

    def _lacking(self, digest: str) -> str:
        """Which blob of an image is not there with its size; empty where all are. Contents are read by who takes it."""
        try:
            layout = Layout(self.folder, digest)
        except ConfigurationError as error:
            return str(error)
        for blob in (layout.image, *layout.blobs):
            path = layout.path(blob)
            if not path.is_file() or path.stat().st_size != blob.size:
                return f"{path} is missing or cut off"
        return ""

    def result(self, key: str) -> BuildResult | None:
        """A record as the result of a cell."""
        record = self.record(key)
        if record is None:
            return None
        return BuildResult(
            identity=record.identity,
            state=CellState.UNCHANGED,
            digest=record.digest,
            build_key=record.build_key,
            checks=record.verdicts,
        )

    def records(self) -> tuple[Record, ...]:
        """All images that are here."""
        found = (self.record(path.stem) for path in sorted(self._records.glob("*.json")))
        return tuple(one for one in found if one is not None)

    def layout(self, digest: str) -> Layout:
        """One image, to be pushed or looked into.

        Raises:
            ConfigurationError: it is not here.
        """
        return Layout(self.folder, digest)

    def keep(self, layout: Layout, record: Record) -> None:
        """Take an image from a layout of its own: all of it, or nothing is seen of it."""
        with locked(self.folder / ".lock"):
            (self.folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
            for blob in (*layout.blobs, layout.image):
                _copy(layout.path(blob), self.folder / "blobs/sha256" / blob.digest.removeprefix("sha256:"))
            write_whole(self._records / f"{record.build_key}.json", msgspec.json.encode(record))
            tag = record.identity.tag
            others = (one for one in self._index().manifests if one.annotations.get(BUILD_KEY) != record.build_key)
            entry = _Entry(
                media_type=layout.image.media_type,
                digest=layout.image.digest,
                size=layout.image.size,
                annotations={BUILD_KEY: record.build_key, REF_NAME: tag},
            )
            self._write([*(_untagged(one, tag) for one in others), entry])

    def remove(self, keys: Iterable[str]) -> int:
        """Forget images, and delete the blobs that none of the others has. How many bytes that were."""
        gone = set(keys)
        with locked(self.folder / ".lock"):
            self._write(one for one in self._index().manifests if one.annotations.get(BUILD_KEY) not in gone)
            for key in gone:
                (self._records / f"{key}.json").unlink(missing_ok=True)
            return self._sweep()

    def _sweep(self) -> int:
        kept: set[str] = set()
        for one in self._index().manifests:
            layout = Layout(self.folder, one.digest)
            kept.update(blob.digest.removeprefix("sha256:") for blob in (*layout.blobs, layout.image))
        freed = 0
        for path in (self.folder / "blobs/sha256").iterdir():
            if path.name not in kept:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _index(self) -> _Index:
        try:
            return msgspec.json.decode((self.folder / "index.json").read_bytes(), type=_Index)
        except FileNotFoundError:
            return _Index()
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigurationError(f"{self.folder} is no OCI layout", details=str(error)) from error

    def _write(self, entries: Iterable[_Entry]) -> None:
        write_whole(self.folder / "oci-layout", _VERSION)
        write_whole(self.folder / "index.json", msgspec.json.encode(_Index(manifests=tuple(entries))))


def _untagged(entry: _Entry, tag: str) -> _Entry:
    if entry.annotations.get(REF_NAME) != tag:
        return entry
    left = {name: value for name, value in entry.annotations.items() if name != REF_NAME}
    return msgspec.structs.replace(entry, annotations=left)


def _copy(source: Path, target: Path) -> None:
    """A blob of its name and size is the same one: its name is its digest. A hard link where that is possible."""
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        beside.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, beside)
    beside.replace(target)


class Remembered:
    """Cells that could not be built, by build key: the same inputs would end the same way."""

    def __init__(self, folder: Path, progress: Progress = lambda _line: None) -> None:
        self._folder = folder / "upgrader/failures"
        self._progress = progress

    def find(self, key: str) -> BuildResult | None:
        """How building this ended, where it did and trying again is of no use; it took no time now."""
        ended = _decoded(self._folder / f"{key}.json", BuildResult, self._progress)
        return None if ended is None else msgspec.structs.replace(ended, seconds=0.0)

    def keep(self, result: BuildResult) -> None:
        """Remember a red cell; one that is only transient is not."""
        if result.failure is not None and result.failure.final:
            write_whole(self._folder / f"{result.build_key}.json", msgspec.json.encode(result))
