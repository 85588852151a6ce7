"""The file tree of a driver image, and the image itself: modules, what belongs with them, programs, the manifest."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.driver_build.driver_builds import Input, Verdict, digits
from upgrader.core.errors import ConfigurationError
from upgrader.images import store
from upgrader.images.buildah import buildah_version, open_storage
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.extraction import extract
from upgrader.images.drivers.builder.trees import make_root, unpack
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.drivers.recipe.manifest import DriverManifest, checksums, describe, encoded, load_order, shipped
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.labels import identity_labels
from upgrader.images.layout import Layout
from upgrader.images.modes import fix_modes
from upgrader.images.product import SIMULATED, busybox_tree
from upgrader.images.trust import BUILD_KEY
from upgrader.process import run

MANIFEST = "driver/manifest.json"
"""Where an image says what it is."""

PROGRAMS = ("modules", "shared")
"""Folders of driver-images/ that images get their programs from; a simulated driver has its own for the first."""

ASSEMBLER = "buildah"
"""Name of the input that the assembling program is: another version may write another layer."""

COMMANDS = (
    *("cat", "chmod", "chroot", "cp", "cut", "date", "dmesg", "find", "grep", "head", "insmod", "ln", "ls", "mkdir"),
    *("mknod", "mv", "printf", "rm", "rmmod", "sed", "sh", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tr"),
    "wc",
)
"""Of busybox, for these programs; a test checks that they suffice."""

_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_LIBRARY = re.compile(r"lib[\w.+-]+\.so(?:\.[\d.]+)?")
_FIRMWARE = re.compile(r"(?:usr/)?lib/(?P<rest>firmware/.+)")
_WHITEOUT = re.compile(r"(?:^|/)\.wh\.")
"""https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts; the opaque one is .wh..wh..opq."""
_SECONDS = 120.0


def programs_input(root: Path) -> Input:
    """The programs as a part of a build key; `root` is driver-images/."""
    facts = [part.hex() for name in PROGRAMS for part in store.contents(root / name)]
    return Input(kind="recipe", name="programs", version="", sha256=digits(facts, 64))


def assembler_input() -> Input:
    """The program that makes the image of its tree, as a part of a build key.

    Raises:
        ProcessError: it is not there.
    """
    version = buildah_version()
    return Input(kind="option", name=ASSEMBLER, version=version, sha256=digits(version, 64))


def lay_files(definition: Definition, packages: PackageStore, target: Path, work: Path) -> None:
    """Libraries, tools and firmware of the driver's packages, where a root has them; documentation is left out.

    Raises:
        ArchiveError: a package cannot be had.
    """
    for package in definition.user_space:
        folder = work / package.name
        make_root(folder)
        unpack(packages.fetch(package), folder)
        for path in sorted(folder.rglob("*")):
            place = _place(path, str(path.relative_to(folder)), definition.identity.arch)
            if place is not None:
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / place, follow_symlinks=False)


def _place(path: Path, name: str, arch: str) -> str | None:
    if path.is_dir() or name.startswith(("usr/share/", "etc/")):
        return None
    if firmware := _FIRMWARE.fullmatch(name):
        return f"lib/{firmware['rest']}"
    if _LIBRARY.fullmatch(path.name):
        return f"usr/lib/{_TRIPLETS[arch]}/{path.name}"
    is_program = path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111
    return f"usr/bin/{path.name}" if is_program else None


def assemble(
    definition: Definition,
    recipe: RecipeFolder,
    *,
    modules: Sequence[Path],
    files: Path,
    verdicts: Sequence[Verdict],
    base: Path,
    layout: Path,
) -> Layout:
    """Make the image of a definition; the same parts give the same digest.

    Args:
        definition: what it is, and what its manifest names.
        recipe: in driver-images/, beside the programs.
        modules: in load order, as they are shipped.
        files: the tree of `lay_files`; may be missing.
        verdicts: of the checks that were made of these modules and files.
        base: the toolchain's tree, which busybox is taken from.
        layout: a folder that does not exist yet.

    Raises:
        ProcessError: buildah ends with an error.
    """
    with tempfile.TemporaryDirectory(prefix="upgrader-driver-", dir=layout.parent) as place:
        context = Path(place) / "context"
        context.mkdir()
        manifest = _fill(context / "rootfs", definition, recipe, modules, files, verdicts, base)
        labels = _labels(manifest, definition)
        storage = open_storage(Path(place) / "storage")
        try:
            storage.make(context=context, file=_own(recipe) / "Containerfile", layout=layout, labels=labels)
        finally:
            run(storage.command("rm", "--all"), timeout=_SECONDS, check=False)
    return Layout(layout)


def _fill(
    tree: Path,
    definition: Definition,
    recipe: RecipeFolder,
    modules: Sequence[Path],
    files: Path,
    verdicts: Sequence[Verdict],
    base: Path,
) -> DriverManifest:
    busybox_tree(tree, busybox=base / "usr/bin/busybox", commands=COMMANDS)
    driver = tree / "driver"
    driver.mkdir()
    _lay_programs(recipe, definition.identity.vendor, driver)
    place = f"lib/modules/{definition.identity.kernel}/updates"
    (driver / place).mkdir(parents=True)
    for module in modules:
        shutil.copyfile(module, driver / place / module.name)
    if files.is_dir():
        shutil.copytree(files, driver / "files", symlinks=True)
    manifest = describe(
        definition.identity,
        definition.inputs,
        in_tree=recipe.recipe.in_tree,
        modules=[shipped(module, f"{place}/{module.name}") for module in modules],
        verdicts=verdicts,
        devices=recipe.recipe.devices,
    )
    (driver / "manifest.json").write_bytes(encoded(manifest))
    (driver / "load-order").write_text(load_order(manifest), encoding="ascii")
    (driver / "modules.sha256").write_text(checksums(manifest), encoding="ascii")
    fix_modes(tree)
    return manifest


def _own(recipe: RecipeFolder) -> Path:
    """Where the programs are that load this sort of driver, with the image's Containerfile."""
    return recipe.folder if recipe.recipe.devices else recipe.folder.parent / PROGRAMS[0]


def _lay_programs(recipe: RecipeFolder, vendor: str, driver: Path) -> None:
    own, shared = _own(recipe), recipe.folder.parent / PROGRAMS[1]
    if recipe.recipe.devices:
        programs = [own / name for name in SIMULATED]
    else:
        programs = sorted(one for one in own.iterdir() if one.is_file() and one.name != "Containerfile")
        devices = own / "devices" / f"{vendor}.sh"
        shutil.copy2(devices if devices.exists() else devices.with_name("none.sh"), driver / "devices.sh")
    for path in [*programs, *sorted(shared.iterdir())]:
        shutil.copy2(path, driver)


def _labels(manifest: DriverManifest, definition: Definition) -> list[tuple[str, str]]:
    """What a registry shows of the image without anybody unpacking it."""
    return [
        *identity_labels(definition.identity).items(),
        (BUILD_KEY, manifest.build_key),
        ("org.opencontainers.image.version", manifest.version),
        ("org.opencontainers.image.title", str(definition.identity)),
    ]


def unpack_driver(layout: Layout, target: Path, only: str = "driver/*") -> None:
    """/driver of an image, as it is shipped, into a folder that does not exist yet. Nothing is written outside of it.

    `only` may name one file, where no more is wanted.

    Images of ours have one layer, and nothing in it is taken away again. Where a layer says that files of an earlier
    one are gone, a node would run other files than are found here: such an image is refused, not guessed at.

    Raises:
        ConfigurationError: a layer has a whiteout.
        ProcessError: a layer cannot be read, has none of it, or goes through a link that leads out.
    """
    target.mkdir(parents=True)
    for layer in layout.blobs[:-1]:
        archive: list[str | Path] = [*_compression(layer.media_type), "--file", layout.path(layer)]
        if (whiteout := _whiteout(archive)) is not None:
            raise ConfigurationError(
                "a layer of the image takes files of an earlier one away again, and such images are not taken",
                details=f"{layer.digest} has the whiteout {whiteout}",
                resolution="Build it with `upgrader build`, or squash its layers into one.",
            )
        extract([*archive, "--wildcards", only], target, timeout=_SECONDS)


def _whiteout(archive: Sequence[str | Path]) -> str | None:
    """The first entry that stands for a file or the contents of a folder that is gone; None where there is none."""
    names = run(["tar", "--list", "--quoting-style=escape", *archive], timeout=_SECONDS).text.splitlines()
    return next((name for name in names if _WHITEOUT.search(name)), None)


def take_modules(layout: Layout, target: Path) -> tuple[Path, ...]:
    """The modules of an image as they are shipped, in no order.

    Raises:
        ConfigurationError: the image holds none.
        ProcessError: as `unpack_driver`.
    """
    unpack_driver(layout, target)
    found = tuple(sorted((target / "driver/lib/modules").glob("*/updates/*.ko")))
    if not found:
        raise ConfigurationError(f"{layout.folder} is no image of a driver with modules")
    return found


def _compression(media_type: str) -> tuple[str, ...]:
    _, _, kind = media_type.rpartition("+")
    return ("--zstd",) if kind == "zstd" else ("--gzip",) if kind == "gzip" else ()
