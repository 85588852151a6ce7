"""The images of this release, built once and pushed: upgrader, trainer, simulated drivers, kubelet artifacts.

A local tag holds a hash of everything that goes into the image, so an image is built when its inputs are new and never twice.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ProcessError
from upgrader.images.base import bootstrap
from upgrader.images.buildah import Buildah
from upgrader.process import run

Progress = Callable[[str], None]

SOURCE = Path(__file__).resolve().parents[2]
CONTAINERFILES = SOURCE / "Containerfiles"
PYTHON = ("3.11", "cp")
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (36, 35, 34, 31, 28, 17)) + ("manylinux2014_x86_64",)
EDITIONS = ("1", "2")
"""The simulated device plugin is the upgrader's image; two editions of it differ in a label, so an upgrade can be shown."""

PIP_SECONDS = 600.0
LAUNCHER = '#!/bin/sh\nexec python3 -m upgrader "$@"\n'


class Product(Struct, frozen=True, kw_only=True):
    """Pushed images, each by digest."""

    upgrader: str
    trainer: str
    plugins: dict[str, str]  # by edition
    drivers: dict[str, str]  # by version
    kubelets: dict[str, str]  # by version


class Workshop:
    """Builds into a storage in `home`; tags are local/NAME:HASH."""

    def __init__(self, home: Path, progress: Progress) -> None:
        self._home = home
        self._progress = progress
        self.buildah = Buildah(home)
        home.mkdir(parents=True, exist_ok=True)

    def base(self) -> str:
        """The base image, or the one that BASE_IMAGE names."""
        named = os.environ.get("BASE_IMAGE", "")
        if named:
            return named
        recipe = (CONTAINERFILES / "base" / "Containerfile", SOURCE / "upgrader" / "images" / "base.py")
        return self._made("base", _hash(recipe), lambda context: bootstrap(context / "rootfs.tar"), {})

    def upgrader(self, edition: str) -> str:
        """The upgrader's own image."""
        base, lock = self.base(), SOURCE / "requirements.lock"
        inputs = (*_files(SOURCE / "upgrader"), lock, CONTAINERFILES / "upgrader" / "Containerfile")

        def fill(context: Path) -> None:
            shutil.copytree(
                self._site(lock), context / "site", ignore=shutil.ignore_patterns("__pycache__", "tests", "*.pyi")
            )
            shutil.copytree(SOURCE / "upgrader", context / "upgrader", ignore=shutil.ignore_patterns("__pycache__"))
            _write(context / "bin" / "upgrader", LAUNCHER)

        return self._made("upgrader", _hash(inputs, base, edition), fill, {"BASE_IMAGE": base, "EDITION": edition})

    def trainer(self) -> str:
        """The trainer."""
        base, folder = self.base(), CONTAINERFILES / "trainer"
        inputs = (*_files(folder), SOURCE / "upgrader" / "workload.py")

        def fill(context: Path) -> None:
            shutil.copytree(folder, context / "trainer", ignore=shutil.ignore_patterns("__pycache__", "Containerfile"))
            shutil.copy(SOURCE / "upgrader" / "workload.py", context / "trainer" / "workload.py")

        return self._made("trainer", _hash(inputs, base), fill, {"BASE_IMAGE": base})

    def sim_driver(self, version: str, kernel: str) -> str:
        """The simulated driver for one kernel."""
        recipe = SOURCE / "driver-images" / "sim"
        manifest = {"vendor": "sim", "version": version, "kernel": kernel, "devices": 8, "simulated": True}
        inputs = (*_files(recipe), CONTAINERFILES / "driver-sim" / "Containerfile", _busybox())

        def fill(context: Path) -> None:
            shutil.copytree(recipe, context / "rootfs" / "driver")
            _write(context / "rootfs" / "driver" / "manifest.json", json.dumps(manifest) + "\n", mode=0o644)
            _put_busybox(context / "rootfs")

        return self._made("driver-sim", _hash(inputs, json.dumps(manifest)), fill, {})

    def kubelet(self, version: str, binary: Path) -> str:
        """An artifact with this kubelet."""
        folder = CONTAINERFILES / "kubelet"

        def fill(context: Path) -> None:
            place = context / "rootfs" / "artifact"
            place.mkdir(parents=True)
            shutil.copy(binary, place / "kubelet")
            (place / "kubelet").chmod(0o755)
            digest = hashlib.sha256(binary.read_bytes()).hexdigest()
            _write(place / "kubelet.sha256", f"{digest}  kubelet\n", mode=0o644)
            shutil.copy(folder / "install", context / "rootfs" / "install")
            _put_busybox(context / "rootfs")

        return self._made("kubelet", _hash((*_files(folder), binary), version), fill, {})

    def _made(self, name: str, digest: str, fill: Callable[[Path], None], arguments: Mapping[str, str]) -> str:
        tag = f"localhost/{name}:{digest}"
        if self.buildah.has(tag):
            return tag
        self._progress(f"building image {name}")
        containerfile = CONTAINERFILES / ("driver-sim" if name == "driver-sim" else name) / "Containerfile"
        with tempfile.TemporaryDirectory(dir=self._home, prefix="context-") as folder:
            fill(Path(folder))
            self.buildah.build(Path(folder), containerfile, tag, arguments)
        return tag

    def _site(self, lock: Path) -> Path:
        """The runtime dependencies as the lock file has them, for the base image's Python."""
        site = self._home / f"site-{_hash((lock,))}"
        if site.exists():
            return site
        self._progress("fetching the runtime dependencies")
        beside = site.with_name(f"{site.name}.{os.getpid()}")
        version, implementation = PYTHON
        words: list[str | Path] = [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
            "--only-binary=:all:", "--no-compile", "--python-version", version, "--implementation", implementation,
            *(word for platform in PLATFORMS for word in ("--platform", platform)),
            "--target", beside, "--requirement", lock,
        ]  # fmt: skip
        run(words, timeout=PIP_SECONDS)
        beside.rename(site)
        return site


def push_product(
    registry: str,
    *,
    home: Path,
    drivers: Iterable[str],
    kernel: str,
    kubelets: Iterable[str],
    kubelet_binary: Callable[[str], Path],
    progress: Progress,
) -> Product:
    """Build what is missing and push everything to a registry that speaks plain HTTP.

    Raises:
        ProcessError: a program is missing or failed.
    """
    workshop = Workshop(home, progress)

    def pushed(tag: str, name: str) -> str:
        with tempfile.TemporaryDirectory(dir=home) as folder:
            digest = workshop.buildah.push(tag, f"{registry}/{name}", Path(folder) / "digest")
        return f"{registry}/{name.partition(':')[0]}@{digest}"

    progress(f"pushing images to {registry}")
    plugins = {one: pushed(workshop.upgrader(one), f"gpu-upgrader:edition-{one}") for one in EDITIONS}
    return Product(
        upgrader=plugins[EDITIONS[0]],
        plugins=plugins,
        trainer=pushed(workshop.trainer(), "trainer:1"),
        drivers={one: pushed(workshop.sim_driver(one, kernel), f"driver-sim:{one}-{kernel}") for one in drivers},
        kubelets={one: pushed(workshop.kubelet(one, kubelet_binary(one)), f"kubelet:{one}") for one in kubelets},
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _hash(files: Iterable[Path], *words: str) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for path in files:
        digest.update(f"\0{path.name}\0{path.stat().st_mode & 0o111:o}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise ProcessError("busybox is missing", resolution="Install the Debian package busybox-static.")
    return Path(found)


def _put_busybox(root: Path) -> None:
    binary = _busybox()
    (root / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(binary, root / "bin" / "busybox")
    (root / "tmp").mkdir(exist_ok=True)
    for name in run([binary, "--list"], timeout=30).stdout.decode().split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")


def _write(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
