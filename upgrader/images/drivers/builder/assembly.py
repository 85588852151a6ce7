"""The file tree of a driver image, and the image: modules, libraries and firmware, programs, the manifest."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input, Verdict, hash_facts
from upgrader.core.errors import ConfigurationError
from upgrader.images import store
from upgrader.images.buildah import buildah_version, open_storage
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.extraction import extract_archive
from upgrader.images.drivers.builder.trees import make_root, unpack_package
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.recipe.manifest import (
    DriverManifest,
    checksum_lines,
    describe_image,
    encode_manifest,
    load_order,
    shipped_module,
)
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.services import PROGRAMS as PROGRAM_FOLDER
from upgrader.images.drivers.recipe.services import ShippedService, service_lines
from upgrader.images.labels import identity_labels, service_labels
from upgrader.images.layout import Layout
from upgrader.images.modes import fix_modes
from upgrader.images.product import SIMULATED, busybox_tree
from upgrader.images.trust import BUILD_KEY
from upgrader.process import run

MANIFEST = "driver/manifest.json"
"""The path of the manifest in an image."""

PROGRAMS = ("modules", "shared")
"""Folders of driver-images/ with the programs of images. A simulated driver has its own instead of the first."""

ASSEMBLER = "buildah"
"""Name of the build input for the assembling program, since another version may write another layer."""

COMMANDS = (
    *("cat", "chmod", "chroot", "cp", "cut", "date", "dmesg", "find", "grep", "head", "insmod", "ln", "ls", "mkdir"),
    *(
        "mknod",
        "mv",
        "printf",
        "readlink",
        "rm",
        "rmmod",
        "sed",
        "sh",
        "sha256sum",
        "sleep",
        "sort",
        "stat",
        "sync",
        "tail",
        "touch",
        "tr",
    ),
    "wc",
)
"""Commands of busybox for these programs. A test checks that the list is complete."""

_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_LIBRARY = re.compile(r"lib[\w.+-]+\.so(?:\.[\d.]+)?")
_FIRMWARE = re.compile(r"(?:usr/)?lib/(?P<rest>firmware/.+)")
_WHITEOUT = re.compile(r"(?:^|/)\.wh\.")
"""https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts; the opaque whiteout is .wh..wh..opq."""
_SECONDS = 120.0


def programs_input(root: Path) -> Input:
    """The programs as an input of a build key. `root` is driver-images/."""
    facts = [part.hex() for name in PROGRAMS for part in store.folder_contents(root / name)]
    return Input(kind="recipe", name="programs", version="", sha256=hash_facts(facts, 64))


def assembler_input() -> Input:
    """The assembling program as an input of a build key.

    Raises:
        ProcessError: the program is missing.
    """
    version = buildah_version()
    return Input(kind="option", name=ASSEMBLER, version=version, sha256=hash_facts(version, 64))


def lay_files(
    definition: BuildDefinition, recipe: RecipeFolder, packages: PackageStore, target: Path, work: Path
) -> None:
    """Copy libraries, tools, firmware and services of the packages to their places in a root, without documentation.

    Raises:
        ArchiveError: a package is not available.
    """
    data = tuple(f"{folder}/" for service in recipe.recipe.services for folder in service.data)
    for package in (*definition.user_space, *definition.services):
        folder = work / package.name
        make_root(folder)
        unpack_package(packages.fetch(package), folder)
        for path in sorted(folder.rglob("*")):
            place = _target_path(path, str(path.relative_to(folder)), definition.identity.arch, data)
            if place is not None:
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / place, follow_symlinks=False)


def _target_path(path: Path, name: str, arch: str, data: tuple[str, ...]) -> str | None:
    if data and name.startswith(data) and not path.is_symlink() and path.is_file():
        return name
    if path.is_dir() or name.startswith(("usr/share/", "etc/")):
        return None
    if firmware := _FIRMWARE.fullmatch(name):
        return f"lib/{firmware['rest']}"
    if _LIBRARY.fullmatch(path.name):
        return f"usr/lib/{_TRIPLETS[arch]}/{path.name}"
    is_program = path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111
    return f"{PROGRAM_FOLDER}/{path.name}" if is_program else None


class ImageContents(Struct, frozen=True, kw_only=True):
    """The built parts of an image.

    `modules` are in load order, as they are shipped; `files` is the tree of `lay_files`, which may be missing, and
    `services` are those in it. `verdicts`: of the checks of modules and files. `signer_key_id`: of the certificate
    that signed the modules; empty if they are not signed.
    """

    modules: tuple[Path, ...]
    files: Path
    services: tuple[ShippedService, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    signer_key_id: str = ""


def assemble_image(
    definition: BuildDefinition, recipe: RecipeFolder, contents: ImageContents, *, base: Path, layout: Path
) -> Layout:
    """Create the image of a definition. The same parts give the same digest.

    Args:
        definition: the identity, and the inputs for the manifest.
        recipe: in driver-images/, next to the programs.
        contents: the built parts.
        base: the toolchain's tree, with busybox.
        layout: a folder that does not exist yet.

    Raises:
        ProcessError: buildah fails.
    """
    with tempfile.TemporaryDirectory(prefix="upgrader-driver-", dir=layout.parent) as place:
        context = Path(place) / "context"
        context.mkdir()
        manifest = _fill_tree(context / "rootfs", definition, recipe, contents, base)
        labels = _image_labels(manifest, definition)
        storage = open_storage(Path(place) / "storage")
        try:
            file = _programs_folder(recipe) / "Containerfile"
            storage.build_image(context=context, file=file, layout=layout, labels=labels)
        finally:
            run(storage.buildah_command("rm", "--all"), timeout=_SECONDS, check=False)
    return Layout(layout)


def _fill_tree(
    tree: Path, definition: BuildDefinition, recipe: RecipeFolder, contents: ImageContents, base: Path
) -> DriverManifest:
    busybox_tree(tree, busybox=base / "usr/bin/busybox", commands=COMMANDS)
    driver = tree / "driver"
    driver.mkdir()
    _lay_programs(recipe, definition.identity.vendor, driver)
    place = f"lib/modules/{definition.identity.kernel}/updates"
    (driver / place).mkdir(parents=True)
    for module in contents.modules:
        shutil.copyfile(module, driver / place / module.name)
    if contents.files.is_dir():
        shutil.copytree(contents.files, driver / "files", symlinks=True)
    manifest = describe_image(
        definition.identity,
        definition.inputs,
        modules=[
            shipped_module(module, f"{place}/{module.name}", optional=recipe.recipe.is_optional(module.stem))
            for module in contents.modules
        ],
        verdicts=contents.verdicts,
        services=contents.services,
        devices=recipe.recipe.devices,
        signer_key_id=contents.signer_key_id,
    )
    (driver / "manifest.json").write_bytes(encode_manifest(manifest))
    (driver / "load-order").write_text(load_order(manifest), encoding="ascii")
    (driver / "services").write_text(service_lines(manifest.services), encoding="ascii")
    (driver / "modules.sha256").write_text(checksum_lines(manifest), encoding="ascii")
    fix_modes(tree)
    return manifest


def _programs_folder(recipe: RecipeFolder) -> Path:
    """The folder with the image's Containerfile and the programs that load this kind of driver."""
    return recipe.folder if recipe.recipe.devices else recipe.folder.parent / PROGRAMS[0]


def _lay_programs(recipe: RecipeFolder, vendor: str, driver: Path) -> None:
    own, shared = _programs_folder(recipe), recipe.folder.parent / PROGRAMS[1]
    if recipe.recipe.devices:
        programs = [own / name for name in SIMULATED]
    else:
        programs = sorted(path for path in own.iterdir() if path.is_file() and path.name != "Containerfile")
        devices = own / "devices" / f"{vendor}.sh"
        shutil.copy2(devices if devices.exists() else devices.with_name("none.sh"), driver / "devices.sh")
    for path in [*programs, *sorted(shared.iterdir())]:
        shutil.copy2(path, driver)


def _image_labels(manifest: DriverManifest, definition: BuildDefinition) -> list[tuple[str, str]]:
    """The labels that a registry shows without unpacking the image."""
    return [
        *identity_labels(definition.identity).items(),
        *service_labels([service.name for service in manifest.services]).items(),
        (BUILD_KEY, manifest.build_key),
        ("org.opencontainers.image.version", manifest.version),
        ("org.opencontainers.image.title", str(definition.identity)),
    ]


def unpack_driver(layout: Layout, target: Path, only: str = "driver/*") -> None:
    """Unpack /driver of an image into a folder that does not exist yet. Nothing is written outside of the folder.

    `only` may select a single file.

    Images of this project have one layer without deletions. If a layer deletes files of an earlier layer, a node would
    run other files than are unpacked here, so that such an image is rejected.

    Raises:
        ConfigurationError: a layer has a whiteout.
        ProcessError: a layer cannot be read, has no matching file, or has a link that leads out of the folder.
    """
    target.mkdir(parents=True)
    for layer in layout.blobs[:-1]:
        archive: list[str | Path] = [*_compression_options(layer.media_type), "--file", layout.blob_path(layer)]
        if (whiteout := _find_whiteout(archive)) is not None:
            raise ConfigurationError(
                "a layer of the image deletes files of an earlier layer, which is not supported",
                details=f"{layer.digest} has the whiteout {whiteout}",
                resolution="Build the image with `upgrader build`, or squash its layers into one.",
            )
        extract_archive([*archive, "--wildcards", only], target, timeout=_SECONDS)


def _find_whiteout(archive: Sequence[str | Path]) -> str | None:
    """The first entry that marks a file or a folder's contents as deleted; None if there is none."""
    names = run(["tar", "--list", "--quoting-style=escape", *archive], timeout=_SECONDS).text.splitlines()
    return next((name for name in names if _WHITEOUT.search(name)), None)


def take_modules(layout: Layout, target: Path) -> tuple[Path, ...]:
    """The modules of an image as they are shipped, unordered.

    Raises:
        ConfigurationError: the image contains none.
        ProcessError: as `unpack_driver`.
    """
    unpack_driver(layout, target)
    modules = tuple(sorted((target / "driver/lib/modules").glob("*/updates/*.ko")))
    if not modules:
        raise ConfigurationError(f"{layout.folder} is not an image of a driver with modules")
    return modules


def _compression_options(media_type: str) -> tuple[str, ...]:
    _, _, kind = media_type.rpartition("+")
    return ("--zstd",) if kind == "zstd" else ("--gzip",) if kind == "gzip" else ()
