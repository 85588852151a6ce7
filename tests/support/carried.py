"""The product as it is here, taken into a virtual machine: modules of Python, kubelets, containerd."""

import importlib.util
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.product import checkout_root
from upgrader.process import FinishedProgram
from upgrader_dev.devcluster import VirtualNode
from upgrader_dev.devcluster.base import binaries, versions

PACKAGES = ("python3-minimal", "libpython3-stdlib", "openssl")
"""Debian's, which the machine needs beside those that virtual nodes have."""

_MODULES = ("elftools", "msgspec", "tenacity", "typing_extensions", "urllib3")
"""What the embedded cluster imports of others."""
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
"""Of this machine: a box runs on those of the distribution, and a virtual node has others of these names."""
SAID = "said"
_HOME = "/root/carried"
_SECONDS = 300.0


def bring(node: VirtualNode, shared: Path) -> None:
    """Unpack all of it on the machine's own disk; `shared` is the folder of the host's that the machine sees."""
    archive = shared / "carried.tar"
    with tarfile.open(archive, "w") as tar:
        for path, name in _files():
            tar.add(path.resolve(), name)
        for version in versions.KUBELETS:
            made = binaries.kubelet_program(version, print)
            link = tarfile.TarInfo(f"cache/upgrader/bin/{made.parent.name}/kubelet")
            link.type, link.linkname = tarfile.SYMTYPE, f"/opt/kubelet/{version}"
            tar.addfile(link)
    node.enter("mkdir", _HOME)
    node.enter("tar", "-x", "-f", f"/var/lib/shared/{archive.name}", "-C", _HOME, seconds=_SECONDS)
    archive.unlink()


def run(node: VirtualNode, *words: str, seconds: float) -> FinishedProgram:
    """Run Python there with these words; what it says on standard error is in SAID of the shared folder at once."""
    paths = f"{_HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    settings = (f"PATH={paths}", "HOME=/root", f"XDG_CACHE_HOME={_HOME}/cache", f"PYTHONPATH={_HOME}/product")
    said = f'exec "$0" "$@" 2>/var/lib/shared/{SAID}'
    return node.enter("sh", "-c", said, "env", *settings, "python3", *words, seconds=seconds, check=False)


def _files() -> Iterator[tuple[Path, str]]:
    """Files and folders, and where they go."""
    yield checkout_root() / "upgrader", "product/upgrader"
    yield checkout_root() / "dev/upgrader_dev", "product/upgrader_dev"
    yield checkout_root() / "tests/support", "product/tests/support"
    for name in _MODULES:
        path = _of_module(name)
        yield path, f"product/{path.name}"
    for name in _PROGRAMS:
        found = shutil.which(name)
        if found is None:
            raise ConfigurationError(f"{name} is missing on this machine")
        yield Path(found), f"bin/{name}"


def _of_module(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ConfigurationError(f"the module {name} is missing")
    path = Path(found.origin)
    return path.parent if path.name == "__init__.py" else path
