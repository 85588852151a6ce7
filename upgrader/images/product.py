"""The product's own images, built once per contents: node, controller, trainer, drivers, plugins, kubelet artifacts."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.images import base, python, store
from upgrader.images.buildah import open_storage
from upgrader.images.layout import Layout
from upgrader.images.modes import fix_modes
from upgrader.images.store import Store
from upgrader.process.places import Progress, cache_root

NODE_PACKAGES = ("grpcio", "msgspec", "prometheus-client", "protobuf", "pyyaml", "typing-extensions")
"""What upgrader.node needs of the lock file."""

NODE_PARTS = (
    "__init__.py",
    *(f"core/{name}.py" for name in ("__init__", "errors", "timing", "untrusted")),
    "core/node_protocol",
    "node",
    *(f"process/{name}.py" for name in ("__init__", "finished", "redact", "run")),
)
"""Of this package, what upgrader.node loads, and nothing else: every node keeps that image."""

BUILDER_PACKAGES = (
    *base.PACKAGES,
    *("buildah", "coreutils", "dpkg", "findutils", "gcc", "libc6-dev", "mount", "openssl", "qemu-system-x86", "tar"),
    *("util-linux", "xz-utils", "zstd"),
)
"""Beside Python: assembling images, boot checks, unpacking packages, roots of one's own, signing modules."""

BUILDER_PARTS = ("upgrader", "driver-images", "Containerfiles")
PYTHON = sys.version_info[:2]
DEVICES = 8
COMMANDS = tuple(
    "cat cut date find grep head mkdir mv rm sed sh sleep sort stat tail tr wc".split()  # noqa: SIM905 - read as a line
)
"""Of busybox, for the scripts of images without a base; a test checks that these suffice."""

SIMULATED = ("load", "prepare", "probe", "unload")
"""Programs of the simulated driver, in driver-images/sim."""

RECIPE = "1"
"""Changed when this module builds something else from the same files."""


class Images:
    """Builds and keeps the images of this checkout; a context manager, because building needs a place for a while.

    Args:
        progress: gets a line per image that is really built.
        cache: where images are kept; default is the user's cache directory.
        base_image: image with this Python and busybox, instead of one from the machine's own archive: the folder of an
            OCI layout, or a name that buildah can pull. Default is BASE_IMAGE of the environment.
    """

    def __init__(self, progress: Progress, *, cache: Path | None = None, base_image: str | None = None) -> None:
        self._root = checkout()
        self._cache = (cache or cache_root()) / "images"
        self._store = Store(self._cache, progress)
        self._base_image = os.environ.get("BASE_IMAGE", "") if base_image is None else base_image
        self._made: dict[str, Layout] = {}
        self._stack = ExitStack()
        self._session: _Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._session = None

    def base(self) -> Layout:
        """Python and busybox."""
        if self._base_image:
            if "given" not in self._made:
                self._made["given"] = self._given(self._base_image)
            return self._made["given"]
        recipe = self._root / "Containerfiles/base"

        def fill(context: Path) -> None:
            base.unpack(context / "rootfs", trim=recipe / "trim", work=context)

        parts = [base.suite(), base.versions(self._cache), *base.LEFT_OUT] if "base" not in self._made else []
        return self._image("base", recipe, parts, fill)

    def _given(self, name: str) -> Layout:
        return Layout(Path(name)) if Path(name).is_dir() else self._place().fetch(name)

    def node(self) -> Layout:
        """Prepare, upgrade, validate, device plugin."""
        packages = self._packages("node", python.subset(self._lock(), NODE_PACKAGES))
        return self._app("node", ("packages", packages), NODE_PARTS)

    def upgrader(self, cosign: Path) -> Layout:
        """The controller, and all commands; with cosign, a static program, by which it verifies driver images."""
        package = sorted(path.name for path in (self._root / "upgrader").iterdir() if path.name != "__pycache__")
        packages = self._packages("upgrader", python.locked(self._lock()))
        return self._app("upgrader", ("cosign", self._with_cosign(cosign, packages)), package)

    def _with_cosign(self, program: Path, packages: Layout) -> Layout:
        def fill(context: Path) -> None:
            shutil.copy(program, context / "cosign")
            (context / "cosign").chmod(0o755)

        recipe = self._root / "Containerfiles/cosign"
        return self._image("cosign", recipe, [_digest(program)], fill, parent=("packages", packages))

    def builder(self, cosign: Path) -> Layout:
        """What build pods run; `cosign` is that program."""
        recipe = self._root / "Containerfiles/builder"
        requirements = python.locked(self._lock())

        def fill(context: Path) -> None:
            root = context / "rootfs"
            base.unpack(root, trim=recipe / "trim", work=context, packages=BUILDER_PACKAGES)
            (context / "requirements").write_text(requirements)
            python.install(context / "requirements", root / "app", python=PYTHON)
            for part in BUILDER_PARTS:
                _copy(self._root / part, root / "app" / part)
            python.compile_all(root / "app", python=PYTHON)
            shutil.copy(cosign, root / "usr/bin/cosign")

        parts: list[bytes | str] = [
            base.suite(),
            base.versions(self._cache, BUILDER_PACKAGES),
            requirements,
            str(PYTHON),
            _digest(cosign),
        ]
        for part in BUILDER_PARTS:
            parts += [part, *store.contents(self._root / part)]
        return self._image("builder", recipe, parts, fill)

    def trainer(self) -> Layout:
        """The trainer of the demo and the tests."""
        recipe, listener = self._root / "Containerfiles/trainer", self._root / "upgrader/workload.py"

        def fill(context: Path) -> None:
            (context / "app").mkdir()
            for path in (listener, *recipe.glob("*.py")):
                shutil.copy(path, context / "app")

        return self._image("trainer", recipe, [listener.read_bytes()], fill, parent=("base", self.base()))

    def driver(self, version: str, kernel: str) -> Layout:
        """A simulated driver for a kernel."""
        recipe, shared = self._root / "driver-images/sim", self._root / "driver-images/shared"
        facts = {"vendor": "sim", "version": version, "kernel": kernel, "devices": DEVICES, "simulated": True}
        manifest = msgspec.json.encode(facts) + b"\n"

        def fill(context: Path) -> None:
            tree = busybox_tree(context / "rootfs", busybox=_busybox(), commands=COMMANDS)
            shutil.copytree(shared, tree / "driver")
            for name in SIMULATED:
                shutil.copy2(recipe / name, tree / "driver")
            (tree / "driver/manifest.json").write_bytes(manifest)

        parts = [manifest, _busybox().read_bytes(), *store.contents(shared)]
        return self._image(f"driver-{version}-{kernel}", recipe, parts, fill)

    def plugin(self, version: str) -> Layout:
        """The simulated device plugin, as a release of its own."""
        recipe = self._root / "Containerfiles/plugin"
        labels = [("org.opencontainers.image.version", version)]

        def fill(_context: Path) -> None:
            """All of it is in the node image."""

        return self._image(f"plugin-{version}", recipe, [version], fill, parent=("node", self.node()), labels=labels)

    def kubelet(self, version: str, binary: Path) -> Layout:
        """A kubelet artifact."""
        recipe = self._root / "Containerfiles/kubelet"
        digest = _digest(binary)

        def fill(context: Path) -> None:
            tree = busybox_tree(context / "rootfs", busybox=_busybox(), commands=COMMANDS)
            shutil.copy(recipe / "install", tree)
            shutil.copy(binary, tree / "kubelet")
            (tree / "kubelet").chmod(0o755)
            (tree / "kubelet.sha256").write_text(f"{digest}  kubelet\n")

        return self._image(f"kubelet-{version}", recipe, [digest, _busybox().read_bytes()], fill)

    def _app(self, name: str, parent: tuple[str, Layout], parts_of_package: Sequence[str]) -> Layout:
        """Parts of this package over an image with the locked packages that they need, compiled."""
        package = self._root / "upgrader"

        def fill(context: Path) -> None:
            for part in parts_of_package:
                _copy(package / part, context / "app" / "upgrader" / part)
            python.compile_all(context / "app", python=PYTHON)

        parts: list[bytes | str] = [str(PYTHON)]
        for part in parts_of_package:
            parts += [part, *store.contents(package / part)]
        return self._image(name, self._root / "Containerfiles" / name, parts, fill, parent=parent)

    def _packages(self, name: str, requirements: str) -> Layout:
        """Locked packages of an image, in a layer of their own: they change less often than ours."""

        def fill(context: Path) -> None:
            (context / "requirements").write_text(requirements)
            python.install(context / "requirements", context / "app", python=PYTHON)
            python.compile_all(context / "app", python=PYTHON)

        recipe = self._root / "Containerfiles/packages"
        return self._image(f"{name}-packages", recipe, [requirements, str(PYTHON)], fill, parent=("base", self.base()))

    def _image(
        self,
        name: str,
        recipe: Path,
        parts: Iterable[bytes | str],
        fill: Callable[[Path], None],
        *,
        parent: tuple[str, Layout] | None = None,
        labels: Sequence[tuple[str, str]] = (),
    ) -> Layout:
        """The image of a recipe over a context that `fill` makes; `parts` are all that `fill` depends on."""
        if name not in self._made:
            base_digest = parent[1].image.digest if parent is not None else ""
            digits = store.key([RECIPE, base_digest, *parts, *store.contents(recipe)])

            def build(layout: Path) -> None:
                self._place().build(recipe / "Containerfile", layout, fill=fill, parent=parent, labels=labels)

            self._made[name] = self._store.image(name, digits, build)
        return self._made[name]

    def _place(self) -> "_Session":
        if self._session is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrader-images-")))
            self._session = _Session(folder)
        return self._session

    def _lock(self) -> str:
        return (self._root / "requirements.lock").read_text(encoding="utf-8")


class _Session:
    """A buildah storage for a while, and the parents that it holds already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storage = open_storage(folder / "storage")
        self._held: dict[str, str] = {}

    def build(
        self,
        file: Path,
        layout: Path,
        *,
        fill: Callable[[Path], None],
        parent: tuple[str, Layout] | None,
        labels: Sequence[tuple[str, str]],
    ) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            context = Path(work)
            fill(context)
            if parent is not None:
                self._hold(*parent)
            self._storage.make(context=context, file=file, layout=layout, labels=labels)

    def fetch(self, name: str) -> Layout:
        """An image from elsewhere; it is kept for as long as this session."""
        layout = self._folder / "given"
        self._storage.fetch(name, layout)
        return Layout(layout)

    def _hold(self, name: str, layout: Layout) -> None:
        if self._held.get(name) != layout.image.digest:
            self._storage.take(layout, f"localhost/upgrader-{name}")
            self._held[name] = layout.image.digest


def checkout() -> Path:
    """The checkout that this package runs from: recipes and the lock file are no part of an installed package.

    Raises:
        ConfigurationError: it was installed without its sources.
    """
    root = Path(__file__).parents[2]
    if not (root / "Containerfiles").is_dir():
        raise ConfigurationError(
            "images are built from a checkout of the repository",
            details=f"{root} has no Containerfiles/",
            resolution="Run it from a checkout, or use the images of a release.",
        )
    return root


def _digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise ConfigurationError("busybox is missing", resolution="Install the Debian package busybox-static.")
    return Path(found)


def busybox_tree(root: Path, *, busybox: Path, commands: Iterable[str]) -> Path:
    """A file tree with a static busybox and links to its commands, and nothing else."""
    programs = root / "bin"
    programs.mkdir(parents=True)
    shutil.copy(busybox, programs / "busybox")
    (root / "tmp").mkdir()
    for command in commands:
        (programs / command).symlink_to("busybox")
    fix_modes(root)
    return root


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
