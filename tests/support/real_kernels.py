"""Real kernels of the distribution's archive: headers to compile a module against, an image to boot."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from upgrader.images import base
from upgrader.images.boot import BootKernel, find_kernel
from upgrader.images.debian.archives import archives
from upgrader.images.debian.discovery import discover
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Kernel, Package
from upgrader.process import run
from upgrader.process.places import cache_root

FLAVOUR = "cloud-amd64"
"""A third of the size of the general one, and boots as well."""

_COMPILE = """
mount -t overlay overlay -o "lowerdir=$0/usr/lib:/usr/lib" /usr/lib
mount --bind "$0/usr/src" /usr/src
make -s -C "/usr/src/linux-headers-$1" "M=$2" KBUILD_MODPOST_WARN=1 modules
"""


class RealKernel(NamedTuple):
    """One kernel, unpacked below `tree`."""

    release: str
    tree: Path

    @property
    def headers(self) -> Path:
        return self.tree / "usr/src" / f"linux-headers-{self.release}"

    @property
    def sign_file(self) -> Path:
        """The kernel's own program for signing modules."""
        return self.headers / "scripts/sign-file"

    def boot(self) -> BootKernel:
        return find_kernel(self.tree, self.release)

    def compile(self, folder: Path, **sources: str) -> dict[str, Path]:
        """Modules of C sources by name, compiled as the kernel's documentation says, in a mount namespace."""
        folder.mkdir()
        for name, source in sources.items():
            (folder / f"{name}.c").write_text(source)
        (folder / "Kbuild").write_text("".join(f"obj-m += {name}.o\n" for name in sources))
        run(["unshare", "--mount", "sh", "-ec", _COMPILE, self.tree, self.release, folder], timeout=300)
        for name in sources:
            run(["strip", "--strip-debug", folder / f"{name}.ko"], timeout=60)
        return {name: folder / f"{name}.ko" for name in sources}


def newest_and_oldest(folder: Path) -> tuple[RealKernel, RealKernel]:
    """The newest kernel of this release's own series, to boot, and the oldest that is still there, to build for."""
    found = discover([base.suite(), f"{base.suite()}-security"], ["main"])
    kernels = sorted((one for one in found.kernels if one.flavour == FLAVOUR), key=_version)
    series = [one for one in kernels if _version(one)[:2] == _version(kernels[0])[:2]]  # without backports
    old, new = series[0], series[-1]
    return _unpacked(folder / "new", new, [*new.headers, *new.image]), _unpacked(folder / "old", old, old.headers)


def _version(kernel: Kernel) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", kernel.release)]


def _unpacked(tree: Path, kernel: Kernel, packages: Sequence[Package]) -> RealKernel:
    cache = cache_root()
    store = PackageStore(cache / "packages", Fetcher(cache / "apt/fetching", archives()))
    tree.mkdir()
    for package in store.fetch_all(packages):
        run(["dpkg-deb", "--extract", package, tree], timeout=300)
    return RealKernel(kernel.release, tree)
