"""Container images on a disk of virtual nodes, unpacked before they boot, as on a machine image that was baked.

A node under emulation takes a minute and more to unpack what this machine unpacks in seconds. containerd knows contents
by their digests: a pull asks the registry for the manifest, and finds all else there.
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
"""What nodes pull beside it lies there too; the file is sparse."""
KEPT = 2
"""Disks that stay although no cluster is up that has them: those that were used last. Each takes 1.5 GB or so."""
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


class Preloaded(Struct, frozen=True, kw_only=True):
    """A finished disk. Nobody writes to it: each node has an overlay."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The raw disk: one file system, which is containerd's folder."""
        return self.folder / "disk.img"

    def used(self) -> None:
        """Note that it is; see `sweep`."""
        os.utime(self.folder)


def find_disk(layouts: Sequence[Layout], progress: Progress) -> Preloaded:
    """The disk with these images, made where it is not there yet (some ten seconds; one process at a time makes one).

    Raises:
        DevClusterError: containerd cannot be built, does not start, or does not end.
        ProcessError: containerd refuses an image, or mke2fs.
    """
    root = cache_root() / "vm"
    programs = {tool.name: binaries.find_program(tool, progress) for tool in versions.CONTAINERD_TOOLS}
    digests = sorted({layout.image.digest for layout in layouts})
    parts: list[bytes | str] = [Path(__file__).read_bytes(), *(one.parent.name for one in programs.values()), *digests]
    made = Preloaded(folder=root / f"{_PREFIX}{store.content_key(parts)}")
    with hold_lock(root / ".container-images.lock", lambda: progress("virtual nodes' container images: another build")):
        if not made.folder.is_dir():
            _make_disk(made, layouts, programs, progress)
        made.used()
        tidy_disks(root, progress)
    return made


def tidy_disks(root: Path, progress: Progress) -> None:
    """Delete what nobody needs; nothing where it is not known what clusters have. The caller holds the lock."""
    try:
        in_use = [
            Path(vm.container_images)
            for one in record.cluster_folders(state_root())
            for vm in record.read_record(one).vms
        ]
    except DevClusterError as error:  # it cannot be read, or is just being taken down
        progress(f"virtual nodes' container images: none is deleted, since {error}")
        return
    for folder in sweep_disks(root, in_use):
        progress(f"virtual nodes' container images: {folder.name} was not used for long, and is deleted")


def sweep_disks(root: Path, in_use: Sequence[Path]) -> list[Path]:
    """Delete disks beyond the KEPT that were used last, but none of a cluster, nor one of the last day; which ones."""
    recent = time.time() - UNUSED_SECONDS
    found = sorted(root.glob(f"{_PREFIX}*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    gone = [one for one in found[KEPT:] if one not in in_use and one.stat().st_mtime < recent]
    for folder in gone:
        shutil.rmtree(folder)
    return gone


def _make_disk(made: Preloaded, layouts: Sequence[Layout], programs: Mapping[str, Path], progress: Progress) -> None:
    started = time.monotonic()
    _clear_builds(made.folder.parent)
    beside = made.folder.with_name(f".{made.folder.name}{_UNFINISHED}")
    beside.mkdir(parents=True)
    try:
        _fill_folder(beside, layouts, programs)
        for path in beside.iterdir():
            if path.name != "disk.img":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        size = (beside / "disk.img").stat().st_blocks * 512
        beside.rename(made.folder)
    finally:
        _clear_builds(made.folder.parent)
    seconds = time.monotonic() - started
    progress(f"virtual nodes' container images: {len(layouts)} unpacked in {seconds:.0f} s, {size / 1e6:.0f} MB")


def _clear_builds(root: Path) -> None:
    """Of builds that did not end, also of killed processes, nothing stays, nor do their containerds."""
    for left in root.glob(f".{_PREFIX}*{_UNFINISHED}"):
        for pid in find_processes(str(left / "containerd.toml")):
            send_signal(pid, signal.SIGKILL, str(left / "containerd.toml"))
            _wait_for_end(pid)
        shutil.rmtree(left)


def _fill_folder(folder: Path, layouts: Sequence[Layout], programs: Mapping[str, Path]) -> None:
    archive = folder / "images.tar"
    write_joint_archive(layouts, archive)
    with _run_containerd(programs["containerd"], folder) as address:
        take = ("-n", _NAMESPACE, "images", "import", "--digests", "--base-name", "preloaded")
        run([programs["ctr"], "-a", address, *take, archive], timeout=_SECONDS)
    archive.unlink()
    words = ("-q", "-F", "-t", "ext4", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1")
    run(["mke2fs", *words, "-d", folder / "root", folder / "disk.img", SIZE], timeout=_SECONDS)


@contextmanager
def _run_containerd(program: Path, folder: Path) -> Iterator[Path]:
    """A containerd with all that it has in a folder; the address that it answers at. Its root is whole afterwards."""
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
        raise DevClusterError(
            "containerd does not end, so what it has written may not be whole", details=last_lines(log)
        )


def _wait_for_end(pid: int) -> bool:
    """Whether a process has ended in time."""
    ended = wait_until_true(lambda: not is_alive(pid), seconds=_END_SECONDS, every=0.02)
    reap_child(pid)
    return ended
