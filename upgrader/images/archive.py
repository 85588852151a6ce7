"""An image as one file: the tar of its OCI layout (`oci-archive`), as podman, skopeo and containerd load it."""

import os
import tarfile
from pathlib import Path

from upgrader.images.layout import Layout


def write_archive(layout: Layout, path: Path) -> None:
    """Write the file anew; the same layout gives the same bytes. A reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(beside, "w", format=tarfile.USTAR_FORMAT) as archive:
            for file in sorted(one for one in layout.folder.rglob("*") if one.is_file()):
                archive.add(file, str(file.relative_to(layout.folder)), filter=_plain)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of when and by whom it was built."""
    info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
    return info
