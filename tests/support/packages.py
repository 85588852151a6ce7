"""Packages and kernels as values, for tests that ask no archive."""

import hashlib

from upgrader.images.debian.values import DebianKernel, Package


def package(name: str, version: str = "1", data: bytes | None = None, **more: object) -> Package:
    """A package; its contents are `data`, or nobody has seen them."""
    held = data if data is not None else f"{name} {version}".encode()
    fields = {
        "name": name,
        "version": version,
        "arch": "amd64",
        "sha256": hashlib.sha256(held).hexdigest(),
        "size": len(held),
        "archive": "debian",
        "path": f"pool/main/{name}_{version}_amd64.deb",
        "suites": ("trixie",),
    }
    return Package(**(fields | more))  # type: ignore[arg-type]


def kernel(release: str, *, version: str = "1", kbuild: str = "1", **more: object) -> DebianKernel:
    """A kernel of trixie whose packages are of `version`."""
    fields = {
        "release": release,
        "os": "trixie",
        "arch": "amd64",
        "flavour": "amd64",
        "compiler": "gcc-14",
        "headers": (package(f"linux-headers-{release}", version), package("linux-kbuild-6.12", kbuild)),
        "image": (package(f"linux-image-{release}", version),),
    }
    return DebianKernel(**(fields | more))  # type: ignore[arg-type]
