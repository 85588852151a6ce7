"""The sandbox image of the boxes: a static busybox that sleeps, as an archive for `ctr images import`.

It is built here, since it has one layer, requires no builder, and must exist before the cluster's registry.
"""

import hashlib
import io
import platform
import shutil
import tarfile
from pathlib import Path

import msgspec

from upgrader.core.errors import DevClusterError
from upgrader.process.places import write_atomically
from upgrader_dev.devcluster.box.node_files import PAUSE_IMAGE

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def make_archive(target: Path) -> None:
    """Write the archive to `target`."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise DevClusterError("busybox is missing", resolution="Install the Debian package busybox-static.")
    layer = _make_tar({"bin/busybox": (Path(busybox).read_bytes(), 0o755)})
    digest = hashlib.sha256(layer).hexdigest()
    config = msgspec.json.encode(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": ["/bin/busybox", "sleep", "1000000000"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    manifest = msgspec.json.encode([{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}])
    files = {"config.json": (config, 0o644), "layer.tar": (layer, 0o644), "manifest.json": (manifest, 0o644)}
    write_atomically(target, _make_tar(files))


def _make_tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
