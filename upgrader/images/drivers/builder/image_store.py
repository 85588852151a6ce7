"""Built images in one OCI layout, found by identity or build key. Any tool for OCI layouts can copy them.

index.json lists every image with its build key; the newest image of an identity has its tag. The folder `upgrader/`,
which is not part of the specification, contains the checks of each image, and the failures.
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
from upgrader.process.places import Progress, hold_lock, write_atomically

REF_NAME = "org.opencontainers.image.ref.name"
_Kind = TypeVar("_Kind")
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'


class ImageRecord(Struct, frozen=True, kw_only=True):
    """The facts about a built image. `seconds` is the duration of build and checks."""

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


def _decode_file(path: Path, kind: type[_Kind], progress: Progress) -> _Kind | None:
    """A file of this store. An unreadable file counts as absent, since the next build writes it again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        progress(f"{path} cannot be read and counts as absent: {error}")
        return None


class Shelf:
    """Images in a folder. Writers hold a lock, and write blobs before the index that lists them.

    Args:
        folder: of the layout.
        progress: receives warnings about unusable files.
    """

    def __init__(self, folder: Path, progress: Progress = lambda _line: None) -> None:
        self.folder = folder
        self._progress = progress
        self._records = folder / "upgrader/records"

    def find_record(self, key: str) -> ImageRecord | None:
        """The image with a build key; None if there is none, or it is incomplete."""
        record = _decode_file(self._records / f"{key}.json", ImageRecord, self._progress)
        if record is None or all(entry.digest != record.digest for entry in self._read_index().manifests):
            return None
        if lacking := self._missing_blob(record.digest):
            self._progress(f"{record.identity}: counts as not built, since {lacking}")
            return None
        return record

    def _missing_blob(self, digest: str) -> str:
        """The blob of an image that is missing or has another size; empty if all exist. Readers verify the contents."""
        try:
            layout = Layout(self.folder, digest)
        except ConfigurationError as error:
            return str(error)
        for blob in (layout.image, *layout.blobs):
            path = layout.blob_path(blob)
            if not path.is_file() or path.stat().st_size != blob.size:
                return f"{path} is missing or truncated"
        return ""

    def find_result(self, key: str) -> BuildResult | None:
        """A record as the result of a cell."""
        record = self.find_record(key)
        if record is None:
            return None
        return BuildResult(
            identity=record.identity,
            state=CellState.UNCHANGED,
            digest=record.digest,
            build_key=record.build_key,
            checks=record.verdicts,
        )

    def list_records(self) -> tuple[ImageRecord, ...]:
        """All images of this store."""
        records = (self.find_record(path.stem) for path in sorted(self._records.glob("*.json")))
        return tuple(record for record in records if record is not None)

    def open_layout(self, digest: str) -> Layout:
        """The layout of one image.

        Raises:
            ConfigurationError: the store does not have it.
        """
        return Layout(self.folder, digest)

    def add_image(self, layout: Layout, record: ImageRecord) -> None:
        """Copy an image from its own layout. Readers see all of it or nothing."""
        with hold_lock(self.folder / ".lock"):
            (self.folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
            for blob in (*layout.blobs, layout.image):
                _copy_blob(layout.blob_path(blob), self.folder / "blobs/sha256" / blob.digest.removeprefix("sha256:"))
            write_atomically(self._records / f"{record.build_key}.json", msgspec.json.encode(record))
            tag = record.identity.tag
            others = (
                entry for entry in self._read_index().manifests if entry.annotations.get(BUILD_KEY) != record.build_key
            )
            entry = _Entry(
                media_type=layout.image.media_type,
                digest=layout.image.digest,
                size=layout.image.size,
                annotations={BUILD_KEY: record.build_key, REF_NAME: tag},
            )
            self._write_index([*(_remove_tag(other, tag) for other in others), entry])

    def remove_images(self, keys: Iterable[str]) -> int:
        """Remove images, and delete the blobs that no other image has. Returns the number of freed bytes."""
        gone = set(keys)
        with hold_lock(self.folder / ".lock"):
            entries = self._read_index().manifests
            self._write_index(entry for entry in entries if entry.annotations.get(BUILD_KEY) not in gone)
            for key in gone:
                (self._records / f"{key}.json").unlink(missing_ok=True)
            return self._delete_unused_blobs()

    def _delete_unused_blobs(self) -> int:
        kept: set[str] = set()
        for entry in self._read_index().manifests:
            layout = Layout(self.folder, entry.digest)
            kept.update(blob.digest.removeprefix("sha256:") for blob in (*layout.blobs, layout.image))
        freed = 0
        for path in (self.folder / "blobs/sha256").iterdir():
            if path.name not in kept:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _read_index(self) -> _Index:
        try:
            return msgspec.json.decode((self.folder / "index.json").read_bytes(), type=_Index)
        except FileNotFoundError:
            return _Index()
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigurationError(f"{self.folder} is not an OCI layout", details=str(error)) from error

    def _write_index(self, entries: Iterable[_Entry]) -> None:
        write_atomically(self.folder / "oci-layout", _VERSION)
        write_atomically(self.folder / "index.json", msgspec.json.encode(_Index(manifests=tuple(entries))))


def _remove_tag(entry: _Entry, tag: str) -> _Entry:
    if entry.annotations.get(REF_NAME) != tag:
        return entry
    annotations = {name: value for name, value in entry.annotations.items() if name != REF_NAME}
    return msgspec.structs.replace(entry, annotations=annotations)


def _copy_blob(source: Path, target: Path) -> None:
    """Create a hard link to a blob, or else a copy. A blob with the same name and size is the same, as its name is its
    digest.
    """
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        beside.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, beside)
    beside.replace(target)


class FailureStore:
    """Failed cells by build key. The same inputs would fail again."""

    def __init__(self, folder: Path, progress: Progress = lambda _line: None) -> None:
        self._folder = folder / "upgrader/failures"
        self._progress = progress

    def find_failure(self, key: str) -> BuildResult | None:
        """The stored failure of a build key, with a duration of zero; None if there is none."""
        ended = _decode_file(self._folder / f"{key}.json", BuildResult, self._progress)
        return None if ended is None else msgspec.structs.replace(ended, seconds=0.0)

    def add_failure(self, result: BuildResult) -> None:
        """Store a failed cell unless its failure is transient."""
        if result.failure is not None and result.failure.final:
            write_atomically(self._folder / f"{result.build_key}.json", msgspec.json.encode(result))
