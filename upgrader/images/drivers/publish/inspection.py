"""Inspects a driver image without building it: its manifest, its modules, and their loading.

Use upgrader/images/trust first to verify the builder: an unsigned image should not be unpacked.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict, build_key
from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images import boot
from upgrader.images.debian.errors import ArchiveError, MissingPackageError
from upgrader.images.debian.values import DebianKernel
from upgrader.images.drivers.builder.assembly import unpack_driver
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.recipe.manifest import (
    DriverManifest,
    checksum_lines,
    load_order,
    read_manifest,
    shipped_module,
)
from upgrader.images.drivers.recipe.services import find_service_faults, service_lines
from upgrader.images.layout import Layout
from upgrader.images.modules import ModuleUnreadableError
from upgrader.images.modules.verify import verify_modules

INSIDE = (
    *(CheckName.MANIFEST, CheckName.VERMAGIC, CheckName.CRC, CheckName.VERSIONS, CheckName.SIGNATURE),
    CheckName.BOOT,
)
"""The checks, in this order."""

_MODULES = "lib/modules/"


class ExpectedImage(Struct, frozen=True, kw_only=True):
    """The expected identity, and the build key and the services on the image's labels."""

    identity: Identity
    build_key: str
    services: str = ""


class KernelTrees:
    """Unpacked packages of kernels, as far as this machine has them.

    Args:
        catalog: the last state of the archives; None if they were never read.
        trees: of a store that fetches nothing.
    """

    def __init__(self, catalog: Catalog | None, trees: Trees) -> None:
        self._catalog = catalog
        self._trees = trees

    def headers_tree(self, identity: Identity) -> Path:
        """The unpacked headers of a kernel.

        Raises:
            ArchiveError: they are missing or incomplete.
        """
        tree = self._trees.unpacked_tree(f"headers-{identity.kernel}", self._find_kernel(identity).headers)
        return tree / "usr/src" / f"linux-headers-{identity.kernel}"

    def image_tree(self, identity: Identity) -> Path:
        """The unpacked kernel itself. Errors as `headers_tree`."""
        return self._trees.unpacked_tree(f"kernel-{identity.kernel}", self._find_kernel(identity).image)

    def _find_kernel(self, identity: Identity) -> DebianKernel:
        if self._catalog is None:
            raise MissingPackageError("no archive was read yet: `upgrader images discover`", name="")
        return self._catalog.find_kernel(identity.kernel, identity.os)


def unchecked_verdicts(why: str) -> tuple[Verdict, ...]:
    """The verdicts on an image that was not inspected."""
    return tuple(Verdict(check=check, passed=None, reason=why) for check in INSIDE)


def inspect_image(
    layout: Layout,
    expected: ExpectedImage,
    kernels: KernelTrees,
    work: Path,
    *,
    certificate: Path | None = None,
    boots: bool = False,
) -> tuple[Verdict, ...]:
    """The verdicts of INSIDE on the image of a layout whose blobs have been verified.

    Args:
        layout: with the image.
        expected: the expected identity and build key.
        kernels: the available kernels.
        work: a folder that does not exist yet.
        certificate: the modules must have its signatures; without it, signatures are not checked.
        boots: whether the kernel is booted with the modules.

    Raises:
        ConfigurationError: the certificate is invalid, or the kernel cannot be booted on this machine.
        ProcessError: QEMU could not start the machine, so there is no result about the modules.
    """
    try:
        unpack_driver(layout, work)
        files = _Files(work / "driver")
        manifest = files.read_manifest()
    except (ProcessError, ConfigurationError) as error:
        return _wrong_manifest(f"{error.brief}: {error.details}".rstrip(": "))
    if trouble := next(_find_contradictions(files, manifest, expected), ""):
        return _wrong_manifest(trouble)
    modules = tuple(files.plain[module.file] for module in manifest.modules)
    verdicts = _check_modules(modules, manifest, expected.identity, kernels, files.user_space, certificate)
    return (
        *verdicts,
        _check_boot(expected.identity, kernels, modules) if boots else _skipped_check(CheckName.BOOT, "not requested"),
    )


def _wrong_manifest(why: str) -> tuple[Verdict, ...]:
    first = Verdict(check=CheckName.MANIFEST, passed=False, reason=why.replace("\n", ": "))
    return (first, *unchecked_verdicts("not checked")[1:])


def _skipped_check(check: CheckName, why: str) -> Verdict:
    return Verdict(check=check, passed=None, reason=why)


class _Files:
    """/driver of an unpacked image. No link is followed, since the image decides where it leads."""

    def __init__(self, folder: Path) -> None:
        paths = (
            {} if folder.is_symlink() else {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
        )
        self.plain: Mapping[str, Path] = {
            name: path for name, path in paths.items() if path.is_file() and not path.is_symlink()
        }
        self.odd = [
            name
            for name, path in paths.items()
            if name.startswith(_MODULES) and name not in self.plain and (path.is_symlink() or not path.is_dir())
        ]
        self.user_space = paths.get("files") if not paths.get("files", folder).is_symlink() else None

    def read_manifest(self) -> DriverManifest:
        """The manifest in the image. Errors as `read_manifest`."""
        if "manifest.json" not in self.plain:
            raise ConfigurationError("it has no /driver/manifest.json")
        return read_manifest(self.plain["manifest.json"])

    def read_text(self, name: str) -> str:
        """The contents of a file; empty if it does not exist."""
        return self.plain[name].read_text(encoding="utf-8", errors="replace") if name in self.plain else ""


def _find_contradictions(files: _Files, manifest: DriverManifest, expected: ExpectedImage) -> Iterator[str]:
    """Contradictions between the image's manifest, its label, and its files."""
    identity = expected.identity
    facts = {name: getattr(manifest, "version" if name == "driver" else name) for name in identity.__struct_fields__}
    for name, value in facts.items():
        if value != getattr(identity, name):
            yield f"its manifest has the {name} {value!r} and not {getattr(identity, name)!r}"
    yield from _find_label_contradictions(manifest, expected)
    if build_key(identity, manifest.inputs) != expected.build_key:
        yield "the inputs of its manifest do not give its build key"
    if files.odd:
        yield f"{files.odd[0]} is not a regular file"
    named = {module.file for module in manifest.modules}
    there = {name for name in files.plain if name.startswith(_MODULES)}
    if named != there:
        yield f"its manifest and its files differ in {', '.join(sorted(named ^ there))}"
        return
    for module in manifest.modules:
        try:
            actual = shipped_module(files.plain[module.file], module.file, optional=module.optional)
        except ModuleUnreadableError as error:
            yield f"{module.file} cannot be read: {error}"
            continue
        if actual != module:
            names = [name for name in module.__struct_fields__ if getattr(actual, name) != getattr(module, name)]
            yield f"{module.file} has another {' and '.join(names)} than its manifest"
    derived = {
        "load-order": load_order(manifest),
        "modules.sha256": checksum_lines(manifest),
        "services": service_lines(manifest.services),
    }
    for name, text in derived.items():
        if files.read_text(name) != text:
            yield f"/driver/{name} does not match its manifest"


def _find_label_contradictions(manifest: DriverManifest, expected: ExpectedImage) -> Iterator[str]:
    if manifest.build_key != expected.build_key:
        yield f"its manifest has the build key {manifest.build_key}, its label {expected.build_key}"
    if (services := ",".join(sorted(service.name for service in manifest.services))) != expected.services:
        yield f"its manifest has the services {services or 'none'}, its label {expected.services or 'none'}"


def _check_modules(
    modules: tuple[Path, ...],
    manifest: DriverManifest,
    identity: Identity,
    kernels: KernelTrees,
    user_space: Path | None,
    certificate: Path | None,
) -> tuple[Verdict, ...]:
    headers, why = None, ""
    try:
        headers = kernels.headers_tree(identity)
    except ArchiveError as error:
        why = f"not checked, since its kernel's headers are not in the store: {error.brief}"
    contents, *others = verify_modules(
        modules,
        headers=headers,
        driver=identity.driver,
        expected=[module.name for module in manifest.modules],
        tree=user_space,
        faults=tuple(find_service_faults(manifest.services, identity.driver, user_space)),
        certificate=certificate,
    )
    needs_headers = {CheckName.VERMAGIC, CheckName.CRC} if why else set()
    reasoned = (
        msgspec.structs.replace(verdict, reason=why) if verdict.check in needs_headers else verdict
        for verdict in others
    )
    if contents.passed is not True:
        return (_wrong_manifest(contents.reason)[0], *reasoned)
    holds = f"{len(modules)} modules, their digests and inputs match the manifest inside and the label"
    return (Verdict(check=CheckName.MANIFEST, passed=True, reason=holds), *reasoned)


def _check_boot(identity: Identity, kernels: KernelTrees, modules: tuple[Path, ...]) -> Verdict:
    try:
        tree = kernels.image_tree(identity)
    except ArchiveError as error:
        return _skipped_check(CheckName.BOOT, f"not checked, since its kernel is not in the store: {error.brief}")
    verdict, _ = boot.boot_modules(boot.find_kernel(tree, identity.kernel), modules)
    return verdict
