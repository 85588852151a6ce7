"""Images as one file: the tar of an OCI layout (`oci-archive`), as podman, skopeo and containerd load it."""

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from upgrader.images.layout import Layout, index_files


def write_archive(layout: Layout, path: Path) -> None:
    """Write the file anew; the same layout gives the same bytes. A reader sees the old file or the new one."""
    with _written(path) as archive:
        for file in sorted(one for one in layout.folder.rglob("*") if one.is_file()):
            archive.add(file, str(file.relative_to(layout.folder)), filter=_plain)


def write_joint_archive(layouts: Sequence[Layout], path: Path) -> None:
    """The same of several images in one file, which has each blob once, whatever else their folders hold."""
    blobs = {blob.digest: layout.path(blob) for layout in layouts for blob in (layout.image, *layout.blobs)}
    with _written(path) as archive:
        for name, data in index_files([layout.image for layout in layouts]).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(_plain(info), io.BytesIO(data))
        for digest, file in sorted(blobs.items()):
            archive.add(file, f"blobs/{digest.replace(':', '/')}", filter=_plain)


@contextmanager
def _written(path: Path) -> Iterator[tarfile.TarFile]:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(beside, "w", format=tarfile.USTAR_FORMAT) as archive:
            yield archive
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of when and by whom it was built."""
    info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
    return info
