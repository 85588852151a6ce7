"""The images of this product, built once per contents: node, controller, trainer, drivers, plugins, kubelets."""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.images import base, image_parts, python, store
from upgrader.images.buildah import open_storage
from upgrader.images.layout import Layout
from upgrader.images.modes import fix_modes
from upgrader.images.store import Store
from upgrader.process.places import Progress, cache_root

BUILDER_PACKAGES = (
    *base.PACKAGES,
    *("buildah", "coreutils", "dpkg", "findutils", "gcc", "libc6-dev", "mount", "openssl", "qemu-system-x86", "tar"),
    *("util-linux", "xz-utils", "zstd"),
)
"""Packages for assembling images, boot checks, unpacking packages, sandboxes and signing modules, in addition to
Python.
"""

BUILDER_PARTS = ("upgrader", "driver-images", "Containerfiles")
PYTHON = sys.version_info[:2]
DEVICES = 8
COMMANDS = tuple(
    "cat cut date find grep head mkdir mv rm sed sh sleep sort stat tail tr wc".split()  # noqa: SIM905 - read as a line
)
"""Commands of busybox for the scripts of images without a base. A test checks that the list is complete."""

SIMULATED = ("load", "prepare", "probe", "unload")
"""Programs of the simulated driver in driver-images/sim."""

RECIPE = "1"
"""Increased when this module builds a different image from the same files."""


class Images:
    """Builds and caches the images of this checkout. A context manager, since a build needs a temporary folder.

    Args:
        progress: receives a line per image that is built.
        cache: the folder of the built images; default is the user's cache directory.
        base_image: an image with this Python and busybox, instead of one from the machine's archive: the folder of an
            OCI layout, or a name that buildah can pull. Default is BASE_IMAGE of the environment.
    """

    def __init__(self, progress: Progress, *, cache: Path | None = None, base_image: str | None = None) -> None:
        self._root = checkout_root()
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

    def base_image(self) -> Layout:
        """The base image: Python and busybox."""
        if self._base_image:
            if "given" not in self._made:
                self._made["given"] = self._given_base(self._base_image)
            return self._made["given"]
        recipe = self._root / "Containerfiles/base"

        def fill(context: Path) -> None:
            base.unpack_base(context / "rootfs", trim=recipe / "trim", work=context)

        parts = (
            [base.suite_name(), base.package_versions(self._cache), *base.LEFT_OUT] if "base" not in self._made else []
        )
        return self._build_image("base", recipe, parts, fill)

    def _given_base(self, name: str) -> Layout:
        return Layout(Path(name)) if Path(name).is_dir() else self._open_session().pull_image(name)

    def node_image(self) -> Layout:
        """The image of prepare, upgrade and validate."""
        packages = self._packages_image("node", python.select_entries(self._read_lock(), image_parts.NODE_PACKAGES))
        return self._package_image("node", ("packages", packages), image_parts.product_parts(image_parts.NODE_PARTS))

    def simulated_gpus_image(self) -> Layout:
        """The node image with the operands of the vendor `sim`: device plugin, exporter, feature discovery, runtime
        hook.
        """
        requirements = python.select_entries(self._read_lock(), image_parts.SIMULATED_GPU_PACKAGES)
        parent = ("node", self.node_image())
        return self._package_image("simulated-gpus", parent, image_parts.SIMULATED_GPUS, requirements=requirements)

    def upgrader_image(self, cosign: Path, *, simulated_gpus: bool = False) -> Layout:
        """The image of the controller and the commands for a cluster. It contains cosign, a static program that
        verifies driver images, and with `simulated_gpus` the vendor `sim`.
        """
        requirements = python.lock_entries(self._read_lock(), without=image_parts.CONTROLLER_LACKS)
        parent = ("cosign", self._cosign_image(cosign, self._packages_image("upgrader", requirements)))
        sources = image_parts.product_parts(image_parts.CONTROLLER_PARTS)
        if simulated_gpus:
            return self._package_image(
                "upgrader-sim", parent, sources | image_parts.SIMULATED_VENDOR, recipe="upgrader"
            )
        return self._package_image("upgrader", parent, sources)

    def _cosign_image(self, program: Path, packages: Layout) -> Layout:
        def fill(context: Path) -> None:
            shutil.copy(program, context / "cosign")
            (context / "cosign").chmod(0o755)

        recipe = self._root / "Containerfiles/cosign"
        return self._build_image("cosign", recipe, [_file_digest(program)], fill, parent=("packages", packages))

    def builder_image(self, cosign: Path) -> Layout:
        """The image of build pods. `cosign` is the path of that program."""
        recipe = self._root / "Containerfiles/builder"
        requirements = python.lock_entries(self._read_lock())

        def fill(context: Path) -> None:
            root = context / "rootfs"
            base.unpack_base(root, trim=recipe / "trim", work=context, packages=BUILDER_PACKAGES)
            (context / "requirements").write_text(requirements)
            python.install_packages(context / "requirements", root / "app", python=PYTHON)
            for part in BUILDER_PARTS:
                _copy_part(self._root / part, root / "app" / part)
            python.compile_all(root / "app", python=PYTHON)
            shutil.copy(cosign, root / "usr/bin/cosign")

        parts: list[bytes | str] = [
            base.suite_name(),
            base.package_versions(self._cache, BUILDER_PACKAGES),
            requirements,
            str(PYTHON),
            _file_digest(cosign),
        ]
        for part in BUILDER_PARTS:
            parts += [part, *store.folder_contents(self._root / part)]
        return self._build_image("builder", recipe, parts, fill)

    def trainer_image(self) -> Layout:
        """The trainer of the demo and the tests."""
        recipe, listener = self._root / "Containerfiles/trainer", self._root / "upgrader/workload.py"

        def fill(context: Path) -> None:
            (context / "app").mkdir()
            for path in (listener, *recipe.glob("*.py")):
                shutil.copy(path, context / "app")

        return self._build_image("trainer", recipe, [listener.read_bytes()], fill, parent=("base", self.base_image()))

    def driver_image(self, version: str, kernel: str) -> Layout:
        """A simulated driver for one kernel."""
        recipe, shared = self._root / "driver-images/sim", self._root / "driver-images/shared"
        facts = {"vendor": "sim", "version": version, "kernel": kernel, "devices": DEVICES, "simulated": True}
        manifest = msgspec.json.encode(facts) + b"\n"

        def fill(context: Path) -> None:
            tree = busybox_tree(context / "rootfs", busybox=_find_busybox(), commands=COMMANDS)
            shutil.copytree(shared, tree / "driver")
            for name in SIMULATED:
                shutil.copy2(recipe / name, tree / "driver")
            (tree / "driver/manifest.json").write_bytes(manifest)

        parts = [manifest, _find_busybox().read_bytes(), *store.folder_contents(shared)]
        return self._build_image(f"driver-{version}-{kernel}", recipe, parts, fill)

    def plugin_image(self, version: str) -> Layout:
        """The simulated device plugin as a separate release."""
        recipe = self._root / "Containerfiles/plugin"
        labels = [("org.opencontainers.image.version", version)]

        def fill(_context: Path) -> None:
            """Its parent already contains everything."""

        parent = ("simulated-gpus", self.simulated_gpus_image())
        return self._build_image(f"plugin-{version}", recipe, [version], fill, parent=parent, labels=labels)

    def kubelet_image(self, version: str, binary: Path) -> Layout:
        """A kubelet artifact."""
        recipe = self._root / "Containerfiles/kubelet"
        digest = _file_digest(binary)

        def fill(context: Path) -> None:
            tree = busybox_tree(context / "rootfs", busybox=_find_busybox(), commands=COMMANDS)
            shutil.copy(recipe / "install", tree)
            shutil.copy(binary, tree / "kubelet")
            (tree / "kubelet").chmod(0o755)
            (tree / "kubelet.sha256").write_text(f"{digest}  kubelet\n")

        return self._build_image(f"kubelet-{version}", recipe, [digest, _find_busybox().read_bytes()], fill)

    def _package_image(
        self,
        name: str,
        parent: tuple[str, Layout],
        sources: Mapping[str, str],
        *,
        recipe: str = "",
        requirements: str = "",
    ) -> Layout:
        """Files and folders of the checkout, compiled, in an image on top of the locked packages that they need.

        `sources`: their paths, by path in the image's folder of packages. `recipe` defaults to `name`.
        `requirements`: lines of the lock file with packages that `parent` lacks.
        """
        paths = {target: self._root / source for target, source in sources.items()}

        def fill(context: Path) -> None:
            if requirements:
                (context / "requirements").write_text(requirements)
                python.install_packages(context / "requirements", context / "app", python=PYTHON)
            for target, path in paths.items():
                _copy_part(path, context / "app" / target)
            python.compile_all(context / "app", python=PYTHON)

        parts: list[bytes | str] = [str(PYTHON), requirements]
        for target, path in paths.items():
            parts += [target, *store.folder_contents(path)]
        return self._build_image(name, self._root / "Containerfiles" / (recipe or name), parts, fill, parent=parent)

    def _packages_image(self, name: str, requirements: str) -> Layout:
        """The locked packages of an image in a separate layer, since they change less often than this package."""

        def fill(context: Path) -> None:
            (context / "requirements").write_text(requirements)
            python.install_packages(context / "requirements", context / "app", python=PYTHON)
            python.compile_all(context / "app", python=PYTHON)

        recipe = self._root / "Containerfiles/packages"
        parent = ("base", self.base_image())
        return self._build_image(f"{name}-packages", recipe, [requirements, str(PYTHON)], fill, parent=parent)

    def _build_image(
        self,
        name: str,
        recipe: Path,
        parts: Iterable[bytes | str],
        fill: Callable[[Path], None],
        *,
        parent: tuple[str, Layout] | None = None,
        labels: Sequence[tuple[str, str]] = (),
    ) -> Layout:
        """Build the image of a recipe in a context that `fill` writes. `parts` are all inputs of `fill`."""
        if name not in self._made:
            base_digest = parent[1].image.digest if parent is not None else ""
            digits = store.content_key([RECIPE, base_digest, *parts, *store.folder_contents(recipe)])

            def build(layout: Path) -> None:
                session = self._open_session()
                session.build_image(recipe / "Containerfile", layout, fill=fill, parent=parent, labels=labels)

            self._made[name] = self._store.build_once(name, digits, build)
        return self._made[name]

    def _open_session(self) -> "_Session":
        if self._session is None:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrader-images-")))
            self._session = _Session(folder)
        return self._session

    def _read_lock(self) -> str:
        return (self._root / "requirements.lock").read_text(encoding="utf-8")


class _Session:
    """A temporary buildah storage, and the parent images that it already contains."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storage = open_storage(folder / "storage")
        self._held: dict[str, str] = {}

    def build_image(
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
                self._import_parent(*parent)
            self._storage.build_image(context=context, file=file, layout=layout, labels=labels)

    def pull_image(self, name: str) -> Layout:
        """Pull an image. It is stored for the duration of this session."""
        layout = self._folder / "given"
        self._storage.pull_image(name, layout)
        return Layout(layout)

    def _import_parent(self, name: str, layout: Layout) -> None:
        if self._held.get(name) != layout.image.digest:
            self._storage.import_layout(layout, f"localhost/upgrader-{name}")
            self._held[name] = layout.image.digest


def checkout_root() -> Path:
    """The root of the checkout that this package runs from. Recipes and the lock file are not in an installed package.

    Raises:
        ConfigurationError: the package was installed without its sources.
    """
    root = Path(__file__).parents[2]
    if not (root / "Containerfiles").is_dir():
        raise ConfigurationError(
            "images can only be built from a checkout of the repository",
            details=f"{root} has no Containerfiles/",
            resolution="Run the command from a checkout, or use the images of a release.",
        )
    return root


def _file_digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _find_busybox() -> Path:
    path = shutil.which("busybox")
    if path is None:
        raise ConfigurationError("busybox is missing", resolution="Install the Debian package busybox-static.")
    return Path(path)


def busybox_tree(root: Path, *, busybox: Path, commands: Iterable[str]) -> Path:
    """Create a file tree that contains only a static busybox and links for the commands."""
    programs = root / "bin"
    programs.mkdir(parents=True)
    shutil.copy(busybox, programs / "busybox")
    (root / "tmp").mkdir()
    for command in commands:
        (programs / command).symlink_to("busybox")
    fix_modes(root)
    return root


def _copy_part(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
