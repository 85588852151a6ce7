"""The base image of all virtual nodes: built once per contents, stored in the user's cache directory."""

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
from upgrader.images.debian.values import DebianKernel
from upgrader.images.drivers.builder.trees import Trees
from upgrader.process.places import Progress, cache_root, hold_lock
from upgrader_dev.devcluster.base import binaries, versions
from upgrader_dev.devcluster.base.spec import Init
from upgrader_dev.devcluster.virtual import disk, initramfs, kernels, rootfs
from upgrader_dev.devcluster.virtual.preloaded import PreloadedDisk

_RECIPE = tuple(Path(str(module.__file__)) for module in (disk, initramfs, rootfs))
"""The code that builds the image; a change of one of these files causes a new build."""

UNUSED_SECONDS = 14 * 86400.0


class Image(Struct, frozen=True, kw_only=True):
    """A finished image. It is never written to: each node has an overlay."""

    folder: Path
    kernels: tuple[str, ...]
    """Releases, oldest first; the last is the default."""
    preloaded: PreloadedDisk | None = None
    """The disk with container images, if any."""

    def check(self, *, kernel: str, kubelet: str) -> None:
        """Raise DevClusterError unless it has both; an empty kernel is any."""
        if kernel not in {"", *self.kernels}:
            available = ", ".join(self.kernels)
            raise DevClusterError(f"virtual nodes have no kernel {kernel}", resolution=f"They have {available}.")
        if kubelet not in versions.KUBELETS:
            available = ", ".join(versions.KUBELETS)
            raise DevClusterError(f"virtual nodes have no kubelet {kubelet}", resolution=f"They have {available}.")

    def record_use(self) -> None:
        """Record the use; see `sweep_images`."""
        os.utime(self.folder)
        if self.preloaded is not None:
            self.preloaded.record_use()

    @property
    def disk(self) -> Path:
        """The raw disk."""
        return self.folder / "disk.img"

    @property
    def kernel(self) -> Path:
        """A kernel to test /dev/kvm with."""
        return self.folder / "vmlinuz"


def find_image(progress: Progress, packages: Sequence[str] = (), *, init: Init = "busybox") -> Image:
    """The image with this first process; a missing image is built (about a minute; one process at a time builds).

    `packages` are additional Debian packages; their scripts are not run, so they are not configured.

    Raises:
        DevClusterError: a program cannot be built, or the archive lacks kernels.
        ConfigurationError, ArchiveError: packages are not available.
    """
    root = cache_root() / "vm"
    all_packages = (*rootfs.INIT_PACKAGES[init], *packages)
    suite = base.suite_name()
    node_kernels = kernels.find_kernels(suite, progress)
    programs = [binaries.find_program(tool, progress) for tool in versions.CONTAINERD_TOOLS]
    kubelets = {version: binaries.kubelet_program(version, progress) for version in versions.KUBELETS}
    inputs: list[bytes | str] = [
        init,
        *(path.read_bytes() for path in (*_RECIPE, rootfs.boot_kernel())),
        suite,
        base.package_versions(cache_root() / "images", all_packages),
        *(package.sha256 for kernel in node_kernels for package in kernel.image),
        *(f"{program.parent.name}/{program.name}" for program in (*programs, *kubelets.values())),
        *store.folder_contents(rootfs.FILES),
    ]
    target = root / f"image-{store.content_key(inputs)}"
    image = Image(folder=target, kernels=tuple(kernel.release for kernel in node_kernels))
    if not target.is_dir():
        with hold_lock(root / ".lock", lambda: progress("virtual nodes' image: waiting for another build")):
            if not target.is_dir():
                parts = ImageParts(
                    kernels=node_kernels, packages=all_packages, programs=programs, kubelets=kubelets, init=init
                )
                _build_image(target, parts, progress)
    image.record_use()
    return image


def sweep_images(root: Path) -> list[Path]:
    """Delete images, of 0.8 GB each, from which no node was started for UNUSED_SECONDS; returns the deleted folders."""
    oldest = time.time() - UNUSED_SECONDS
    stale = [folder for folder in sorted(root.glob("image-*")) if folder.stat().st_mtime < oldest]
    for folder in stale:
        shutil.rmtree(folder)
    return stale


class ImageParts(Struct, frozen=True, kw_only=True):
    """What an image is built from; `packages` are names, `kubelets` are by version."""

    kernels: list[DebianKernel]
    packages: Sequence[str]
    programs: list[Path]
    kubelets: dict[str, Path]
    init: Init


def _build_image(target: Path, parts: ImageParts, progress: Progress) -> None:
    started = time.monotonic()
    progress(f"virtual nodes' image: building (kept in {target})")
    temporary = target.with_name(f".{target.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    packages = PackageStore(cache_root() / "packages", Fetcher(cache_root() / "apt/fetching", configured_archives()))
    trees = Trees(cache_root() / "driver-builds/trees", packages, progress)
    with packages.in_use(progress):
        unpacked = {trees.unpacked_tree(f"kernel-{kernel.release}", kernel.image): kernel for kernel in parts.kernels}
    progress(f"virtual nodes' image: {len(parts.packages)} packages and their dependencies")
    archive, tree = temporary / "base.tar", temporary / "root"
    base.download_packages(archive, parts.packages)
    rootfs.make_node_root(tree, archive, unpacked, parts.programs, parts.kubelets, init=parts.init)
    progress("virtual nodes' image: writing the disk")
    area = disk.boot_area(tree)
    rootfs.finish_root(tree)
    disk.make_disk(area, tree, temporary / "disk.img")
    shutil.copy(tree / "boot" / f"vmlinuz-{parts.kernels[-1].release}", temporary / "vmlinuz")
    shutil.rmtree(tree)
    archive.unlink()
    temporary.rename(target)
    for folder in sweep_images(target.parent):
        progress(f"virtual nodes' image: {folder.name} was not used recently, and is deleted")
    size = sum(path.stat().st_blocks * 512 for path in target.iterdir())
    progress(f"virtual nodes' image: built in {time.monotonic() - started:.0f} s, {size / 1e6:.0f} MB")
