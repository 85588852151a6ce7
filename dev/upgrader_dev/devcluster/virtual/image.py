"""The image that all virtual nodes start from: built once per contents, kept in the user's cache directory."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader.images import base, store
from upgrader.images.debian.archives import configured_archives
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Kernel
from upgrader.images.drivers.builder.trees import Trees
from upgrader.process.places import Progress, cache_root, hold_lock
from upgrader_dev.devcluster.base import binaries, versions
from upgrader_dev.devcluster.virtual import disk, initramfs, kernels, rootfs
from upgrader_dev.devcluster.virtual.preloaded import Preloaded

_RECIPE = tuple(Path(str(one.__file__)) for one in (disk, initramfs, rootfs))
"""What makes the image; it is made anew when one of these files changes."""

UNUSED_SECONDS = 14 * 86400.0


class Image(Struct, frozen=True, kw_only=True):
    """A finished image. Nobody writes to it: each node has an overlay."""

    folder: Path
    kernels: tuple[str, ...]
    """Releases, oldest first; the last is what it boots by itself."""
    preloaded: Preloaded | None = None
    """What of container images comes with it."""

    def check(self, *, kernel: str, kubelet: str) -> None:
        """Raise DevClusterError unless it has both; an empty kernel is any."""
        if kernel not in {"", *self.kernels}:
            there = ", ".join(self.kernels)
            raise DevClusterError(f"virtual nodes have no kernel {kernel}", resolution=f"They have {there}.")
        if kubelet not in versions.KUBELETS:
            there = ", ".join(versions.KUBELETS)
            raise DevClusterError(f"virtual nodes have no kubelet {kubelet}", resolution=f"They have {there}.")

    def used(self) -> None:
        """Note that it is; see `sweep`."""
        os.utime(self.folder)
        if self.preloaded is not None:
            self.preloaded.used()

    @property
    def disk(self) -> Path:
        """The raw disk."""
        return self.folder / "disk.img"

    @property
    def kernel(self) -> Path:
        """A kernel to try /dev/kvm with."""
        return self.folder / "vmlinuz"


def find_image(progress: Progress, packages: Sequence[str] = ()) -> Image:
    """The image, built where it is not there yet (about a minute; one process at a time builds).

    `packages` are Debian's that are to be on it beside those that every virtual node has; they are never set up, since
    none of their scripts is run.

    Raises:
        DevClusterError: a program cannot be built, or the archive lacks kernels.
        ConfigurationError, ArchiveError: packages cannot be had.
    """
    root = cache_root() / "vm"
    wanted = (*rootfs.PACKAGES, *packages)
    suite = base.suite_name()
    found = kernels.find_kernels(suite, progress)
    programs = [binaries.find_program(tool, progress) for tool in versions.CONTAINERD_TOOLS]
    kubelets = {version: binaries.kubelet_program(version, progress) for version in versions.KUBELETS}
    inputs: list[bytes | str] = [
        *(path.read_bytes() for path in (*_RECIPE, rootfs.boot_kernel())),
        suite,
        base.package_versions(cache_root() / "images", wanted),
        *(package.sha256 for kernel in found for package in kernel.image),
        *(f"{program.parent.name}/{program.name}" for program in (*programs, *kubelets.values())),
        *store.folder_contents(rootfs.FILES),
    ]
    target = root / f"image-{store.content_key(inputs)}"
    made = Image(folder=target, kernels=tuple(kernel.release for kernel in found))
    if not target.is_dir():
        with hold_lock(root / ".lock", lambda: progress("virtual nodes' image: waiting for another build")):
            if not target.is_dir():
                _build_image(target, found, wanted, programs, kubelets, progress)
    made.used()
    return made


def sweep_images(root: Path) -> list[Path]:
    """Delete images that no node was started from for UNUSED_SECONDS, each of which takes 0.8 GB; what was deleted."""
    oldest = time.time() - UNUSED_SECONDS
    stale = [folder for folder in sorted(root.glob("image-*")) if folder.stat().st_mtime < oldest]
    for folder in stale:
        shutil.rmtree(folder)
    return stale


def _build_image(
    target: Path,
    found: list[Kernel],
    wanted: Sequence[str],
    programs: list[Path],
    kubelets: dict[str, Path],
    progress: Progress,
) -> None:
    started = time.monotonic()
    progress(f"virtual nodes' image: building (kept in {target})")
    beside = target.with_name(f".{target.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    packages = PackageStore(cache_root() / "packages", Fetcher(cache_root() / "apt/fetching", configured_archives()))
    trees = Trees(cache_root() / "driver-builds/trees", packages, progress)
    with packages.in_use(progress):
        unpacked = {trees.unpacked_tree(f"kernel-{kernel.release}", kernel.image): kernel for kernel in found}
    progress(f"virtual nodes' image: {len(wanted)} packages and what they need")
    archive, tree = beside / "base.tar", beside / "root"
    base.download_packages(archive, wanted)
    rootfs.make_node_root(tree, archive, unpacked, programs, kubelets)
    progress("virtual nodes' image: writing the disk")
    area = disk.boot_area(tree)
    rootfs.finish_root(tree)
    disk.make_disk(area, tree, beside / "disk.img")
    shutil.copy(tree / "boot" / f"vmlinuz-{found[-1].release}", beside / "vmlinuz")
    shutil.rmtree(tree)
    archive.unlink()
    beside.rename(target)
    for folder in sweep_images(target.parent):
        progress(f"virtual nodes' image: {folder.name} was not used for long, and is deleted")
    size = sum(path.stat().st_blocks * 512 for path in target.iterdir())
    progress(f"virtual nodes' image: built in {time.monotonic() - started:.0f} s, {size / 1e6:.0f} MB")
