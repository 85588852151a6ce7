"""A disk with container images for virtual nodes, unpacked before they boot, as on a prepared machine image.

A node under emulation takes more than a minute to unpack what this machine unpacks in seconds. containerd finds
contents by digest: a pull requests the manifest from the registry, and finds everything else on the disk.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader.images import store
from upgrader.images.archive import write_joint_archive
from upgrader.images.layout import Layout
from upgrader.process import run
from upgrader.process.daemon import find_processes, is_alive, reap_child, send_signal, start_daemon
from upgrader.process.places import Progress, cache_root, hold_lock, last_lines, state_root
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster.base import binaries, record, versions

SIZE = "8g"
"""Images that nodes pull later are stored on it too; the file is sparse."""
KEPT_DISKS = 2
"""The most recently used disks that remain although no running cluster uses them. Each takes about 1.5 GB."""
UNUSED_SECONDS = 86400.0
_NAMESPACE = "k8s.io"
_PREFIX = "container-images-"
_UNFINISHED = ".new"
_SECONDS = 300.0
_END_SECONDS = 20.0

_CONFIG = """\
version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", \
"io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", \
"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/ttrpc.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""


class PreloadedDisk(Struct, frozen=True, kw_only=True):
    """A finished disk. It is never written to: each node has an overlay."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The raw disk: one file system, which is containerd's folder."""
        return self.folder / "disk.img"

    def record_use(self) -> None:
        """Record the use; see `sweep_disks`."""
        os.utime(self.folder)


def find_disk(layouts: Sequence[Layout], progress: Progress) -> PreloadedDisk:
    """The disk with these images; a missing disk is built (about ten seconds; one process at a time builds).

    Raises:
        DevClusterError: containerd cannot be built, does not start, or does not end.
        ProcessError: containerd rejects an image, or mke2fs fails.
    """
    root = cache_root() / "vm"
    programs = {tool.name: binaries.find_program(tool, progress) for tool in versions.CONTAINERD_TOOLS}
    digests = sorted({layout.image.digest for layout in layouts})
    parts: list[bytes | str] = [
        Path(__file__).read_bytes(),
        *(program.parent.name for program in programs.values()),
        *digests,
    ]
    disk = PreloadedDisk(folder=root / f"{_PREFIX}{store.content_key(parts)}")
    with hold_lock(root / ".container-images.lock", lambda: progress("virtual nodes' container images: another build")):
        if not disk.folder.is_dir():
            _make_disk(disk, layouts, programs, progress)
        disk.record_use()
        tidy_disks(root, progress)
    return disk


def tidy_disks(root: Path, progress: Progress) -> None:
    """Delete unused disks; none if the records of clusters cannot be read. The caller holds the lock."""
    try:
        in_use = [
            Path(vm.container_images)
            for cluster in record.cluster_folders(state_root())
            for vm in record.read_record(cluster).vms
        ]
    except DevClusterError as error:  # the record is malformed, or the cluster is just being deleted
        progress(f"virtual nodes' container images: none is deleted, since {error}")
        return
    for folder in sweep_disks(root, in_use):
        progress(f"virtual nodes' container images: {folder.name} was not used recently, and is deleted")


def sweep_disks(root: Path, in_use: Sequence[Path]) -> list[Path]:
    """Delete and return disks beyond the KEPT_DISKS newest, except those of clusters or of the last day."""
    recent = time.time() - UNUSED_SECONDS
    disks = sorted(root.glob(f"{_PREFIX}*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    stale = [disk for disk in disks[KEPT_DISKS:] if disk not in in_use and disk.stat().st_mtime < recent]
    for folder in stale:
        shutil.rmtree(folder)
    return stale


def _make_disk(
    target: PreloadedDisk, layouts: Sequence[Layout], programs: Mapping[str, Path], progress: Progress
) -> None:
    started = time.monotonic()
    _clear_builds(target.folder.parent)
    temporary = target.folder.with_name(f".{target.folder.name}{_UNFINISHED}")
    temporary.mkdir(parents=True)
    try:
        _fill_folder(temporary, layouts, programs)
        for path in temporary.iterdir():
            if path.name != "disk.img":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        size = (temporary / "disk.img").stat().st_blocks * 512
        temporary.rename(target.folder)
    finally:
        _clear_builds(target.folder.parent)
    seconds = time.monotonic() - started
    progress(f"virtual nodes' container images: {len(layouts)} unpacked in {seconds:.0f} s, {size / 1e6:.0f} MB")


def _clear_builds(root: Path) -> None:
    """Remove unfinished builds, including those of killed processes, with their containerds."""
    for unfinished in root.glob(f".{_PREFIX}*{_UNFINISHED}"):
        for pid in find_processes(str(unfinished / "containerd.toml")):
            send_signal(pid, signal.SIGKILL, str(unfinished / "containerd.toml"))
            _wait_for_end(pid)
        shutil.rmtree(unfinished)


def _fill_folder(folder: Path, layouts: Sequence[Layout], programs: Mapping[str, Path]) -> None:
    archive = folder / "images.tar"
    write_joint_archive(layouts, archive)
    with _run_containerd(programs["containerd"], folder) as address:
        import_command = ("-n", _NAMESPACE, "images", "import", "--digests", "--base-name", "preloaded")
        run([programs["ctr"], "-a", address, *import_command, archive], timeout=_SECONDS)
    archive.unlink()
    words = ("-q", "-F", "-t", "ext4", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1")
    run(["mke2fs", *words, "-d", folder / "root", folder / "disk.img", SIZE], timeout=_SECONDS)


@contextmanager
def _run_containerd(program: Path, folder: Path) -> Iterator[Path]:
    """A containerd with all its files in a folder; yields its address. Its root is complete afterwards."""
    config, log, address = folder / "containerd.toml", folder / "containerd.log", folder / "containerd.sock"
    config.write_text(_CONFIG.format(folder=folder))
    pid = start_daemon([program, "--config", config], log=log)
    try:
        if not wait_until_true(
            lambda: address.exists() or not is_alive(pid), seconds=_SECONDS, every=0.02
        ) or not is_alive(pid):
            raise DevClusterError("containerd does not start on this machine", details=last_lines(log))
        yield address
    finally:
        send_signal(pid, signal.SIGTERM, str(config))
        ended = _wait_for_end(pid)
    if not ended:
        raise DevClusterError("containerd does not end, so its files may be incomplete", details=last_lines(log))


def _wait_for_end(pid: int) -> bool:
    """Whether a process ended in time."""
    ended = wait_until_true(lambda: not is_alive(pid), seconds=_END_SECONDS, every=0.02)
    reap_child(pid)
    return ended
