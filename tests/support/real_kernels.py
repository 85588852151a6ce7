"""Real kernels of the distribution's archive: headers to compile a module against, an image to boot."""

import re
from pathlib import Path
from typing import NamedTuple

from upgrader.images.boot import BootKernel, find_kernel
from upgrader.images.debian.values import DebianKernel
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.builder.sandbox import Sandbox
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.toolchain import Toolchain
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.process.places import cache_root

FLAVOUR = "cloud-amd64"
"""A third of the size of the general one, and boots as well."""

OS = "bookworm"
MEMORY_MIB = 1024


class RealKernel(NamedTuple):
    """One kernel with the toolchain that it was built with; both are unpacked where all builds have them."""

    kernel: DebianKernel
    chain: Toolchain
    trees: Trees

    @property
    def release(self) -> str:
        return self.kernel.release

    @property
    def headers(self) -> Path:
        return self._headers / "usr/src" / f"linux-headers-{self.release}"

    @property
    def sign_file(self) -> Path:
        """The kernel's own program for signing modules."""
        return self.headers / "scripts/sign-file"

    def boot(self) -> BootKernel:
        return find_kernel(self.trees.unpacked_tree(f"kernel-{self.release}", self.kernel.image), self.release)

    def compile(self, folder: Path, **sources: str) -> dict[str, Path]:
        """Modules of C sources by name, compiled where drivers are, as the kernel's documentation says."""
        folder.mkdir()
        folder.chmod(0o755)
        for name, source in sources.items():
            (folder / f"{name}.c").write_text(source)
        (folder / "Kbuild").write_text("".join(f"obj-m += {name}.o\n" for name in sources))
        headers = f"/usr/src/linux-headers-{self.release}"
        self._run(folder, "make", "-s", "-C", headers, "M=/build", "KBUILD_MODPOST_WARN=1", "modules")
        self._run(folder, "strip", "--strip-debug", *(f"{name}.ko" for name in sources))
        return {name: folder / f"{name}.ko" for name in sources}

    @property
    def _headers(self) -> Path:
        return self.trees.unpacked_tree(f"headers-{self.release}", self.kernel.headers)

    def _run(self, folder: Path, *words: str) -> None:
        base = self.trees.unpacked_tree(
            f"toolchain-{self.chain.os}-{self.chain.compiler}", self.chain.packages, toolchain.finish_tree
        )
        with BuildBudget(folder.parent, cores=2, memory_mib=MEMORY_MIB) as budget, budget.reserve_share(MEMORY_MIB):
            sandbox = Sandbox(layers=(self._headers, base), build=folder, tokens=budget.tokens, memory_mib=MEMORY_MIB)
            sandbox.chown_build()
            ended = sandbox.run(words, timeout=300)
        assert ended.code == 0, ended.text


def newest_and_oldest(catalog: Catalog) -> tuple[RealKernel, RealKernel]:
    """The newest kernel of the release's own series, to boot, and the oldest that is still there, to build for."""
    found = (one for one in catalog.discovery.kernels if (one.os, one.flavour) == (OS, FLAVOUR))
    kernels = sorted(found, key=_version)
    old, *_, new = [one for one in kernels if _version(one)[:2] == _version(kernels[0])[:2]]  # newer ones come beside
    trees = Trees(cache_root() / "driver-builds/trees", Site(WorkspaceSettings(), print).packages, print)
    return RealKernel(new, catalog.find_toolchain(new), trees), RealKernel(old, catalog.find_toolchain(old), trees)


def _version(kernel: DebianKernel) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", kernel.release)]
