"""One tar file per image (`oci-archive`): the tar of an OCI layout, which podman, skopeo and containerd can load."""

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from upgrader.images.layout import Layout, index_files


def write_archive(layout: Layout, path: Path) -> None:
    """Write the archive of a layout and replace the file atomically. The same layout gives the same bytes."""
    with _open_archive(path) as archive:
        for file in sorted(entry for entry in layout.folder.rglob("*") if entry.is_file()):
            archive.add(file, str(file.relative_to(layout.folder)), filter=_strip_metadata)


def write_joint_archive(layouts: Sequence[Layout], path: Path) -> None:
    """Write several images into one archive with each blob once, and nothing else of the layouts' folders."""
    blobs = {blob.digest: layout.blob_path(blob) for layout in layouts for blob in (layout.image, *layout.blobs)}
    with _open_archive(path) as archive:
        for name, data in index_files([layout.image for layout in layouts]).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(_strip_metadata(info), io.BytesIO(data))
        for digest, file in sorted(blobs.items()):
            archive.add(file, f"blobs/{digest.replace(':', '/')}", filter=_strip_metadata)


@contextmanager
def _open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(beside, "w", format=tarfile.USTAR_FORMAT) as archive:
            yield archive
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _strip_metadata(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner, mode and time, so that the archive does not depend on who builds it and when."""
    info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
    return info
