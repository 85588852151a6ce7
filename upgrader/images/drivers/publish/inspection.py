"""A driver image looked into without building it again: what it says of itself, its modules, and how they load.

Whoever wants to know who made it asks upgrader/images/trust first: what nobody has signed is better not unpacked.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict, build_key
from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images import boot
from upgrader.images.debian.errors import ArchiveError, MissingPackageError
from upgrader.images.debian.values import Kernel
from upgrader.images.drivers.builder.assembly import unpack_driver
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.recipe.manifest import DriverManifest, checksums, load_order, read_manifest, shipped
from upgrader.images.layout import Layout
from upgrader.images.modules import ModuleUnreadableError
from upgrader.images.modules.verify import verify_modules

INSIDE = (
    *(CheckName.MANIFEST, CheckName.VERMAGIC, CheckName.CRC, CheckName.VERSIONS, CheckName.SIGNATURE),
    CheckName.BOOT,
)
"""What is looked at, in this order."""

_MODULES = "lib/modules/"


class Expected(Struct, frozen=True, kw_only=True):
    """Which driver the image has to be, and the build key on its label."""

    identity: Identity
    build_key: str


class KernelTrees:
    """Unpacked packages of kernels, as far as they are on this machine.

    Args:
        catalog: what the archives had when they were last asked; None where they never were.
        trees: of a store that fetches nothing.
    """

    def __init__(self, catalog: Catalog | None, trees: Trees) -> None:
        self._catalog = catalog
        self._trees = trees

    def headers(self, identity: Identity) -> Path:
        """The unpacked headers of a kernel.

        Raises:
            ArchiveError: they are not here, or not whole.
        """
        tree = self._trees.tree(f"headers-{identity.kernel}", self._kernel(identity).headers)
        return tree / "usr/src" / f"linux-headers-{identity.kernel}"

    def image(self, identity: Identity) -> Path:
        """The unpacked kernel itself. Errors as `headers`."""
        return self._trees.tree(f"kernel-{identity.kernel}", self._kernel(identity).image)

    def _kernel(self, identity: Identity) -> Kernel:
        if self._catalog is None:
            raise MissingPackageError("no archive was asked yet: `upgrader images discover`", name="")
        return self._catalog.kernel(identity.kernel, identity.os)


def not_looked_at(why: str) -> tuple[Verdict, ...]:
    """The verdicts on an image that nobody looked into."""
    return tuple(Verdict(check=check, passed=None, reason=why) for check in INSIDE)


def inspect(
    layout: Layout,
    expected: Expected,
    kernels: KernelTrees,
    work: Path,
    *,
    certificate: Path | None = None,
    boots: bool = False,
) -> tuple[Verdict, ...]:
    """The verdicts of INSIDE on the image of a layout, whose blobs are what their digests say.

    Args:
        layout: with the image.
        expected: what it has to be.
        kernels: where its kernel is looked for.
        work: a folder that does not exist yet.
        certificate: whose signatures the modules have to carry; without, signatures are not looked at.
        boots: whether the kernel is started with the modules.

    Raises:
        ConfigurationError: the certificate is none, or the kernel cannot be started here.
        ProcessError: QEMU could not start the machine: nothing was found out about the modules.
    """
    try:
        unpack_driver(layout, work)
        files = _Files(work / "driver")
        manifest = files.manifest()
    except (ProcessError, ConfigurationError) as error:
        return _wrong(f"{error.brief}: {error.details}".rstrip(": "))
    if trouble := next(_troubles(files, manifest, expected), ""):
        return _wrong(trouble)
    modules = tuple(files.plain[one.file] for one in manifest.modules)
    found = _modules(modules, manifest, expected.identity, kernels, files.user_space, certificate)
    return (*found, _boot(expected.identity, kernels, modules) if boots else _skipped(CheckName.BOOT, "not asked for"))


def _wrong(why: str) -> tuple[Verdict, ...]:
    first = Verdict(check=CheckName.MANIFEST, passed=False, reason=why.replace("\n", ": "))
    return (first, *not_looked_at("not looked at")[1:])


def _skipped(check: CheckName, why: str) -> Verdict:
    return Verdict(check=check, passed=None, reason=why)


class _Files:
    """/driver of an unpacked image. No link is followed: it was unpacked by us, and leads wherever its maker wants."""

    def __init__(self, folder: Path) -> None:
        found = {} if folder.is_symlink() else {str(one.relative_to(folder)): one for one in sorted(folder.rglob("*"))}
        self.plain: Mapping[str, Path] = {
            name: path for name, path in found.items() if path.is_file() and not path.is_symlink()
        }
        self.odd = [
            name
            for name, path in found.items()
            if name.startswith(_MODULES) and name not in self.plain and (path.is_symlink() or not path.is_dir())
        ]
        self.user_space = found.get("files") if not found.get("files", folder).is_symlink() else None

    def manifest(self) -> DriverManifest:
        """What the image says of itself. Errors as `read_manifest`."""
        if "manifest.json" not in self.plain:
            raise ConfigurationError("it has no /driver/manifest.json")
        return read_manifest(self.plain["manifest.json"])

    def text(self, name: str) -> str:
        """A file that is there; empty where it is not."""
        return self.plain[name].read_text(encoding="utf-8", errors="replace") if name in self.plain else ""


def _troubles(files: _Files, manifest: DriverManifest, expected: Expected) -> Iterator[str]:
    """What an image says of itself against its label, and its files against what it says."""
    identity = expected.identity
    said = {name: getattr(manifest, "version" if name == "driver" else name) for name in identity.__struct_fields__}
    for name, value in said.items():
        if value != getattr(identity, name):
            yield f"its manifest is about {name} {value!r} and not {getattr(identity, name)!r}"
    if manifest.build_key != expected.build_key:
        yield f"its manifest is of build key {manifest.build_key}, its label of {expected.build_key}"
    if build_key(identity, manifest.inputs) != expected.build_key:
        yield "the inputs of its manifest do not give its build key"
    if files.odd:
        yield f"{files.odd[0]} is no plain file"
    named = {one.file for one in manifest.modules}
    there = {name for name in files.plain if name.startswith(_MODULES)}
    if named != there:
        yield f"its manifest and its files differ in {', '.join(sorted(named ^ there))}"
        return
    for one in manifest.modules:
        try:
            found = shipped(files.plain[one.file], one.file)
        except ModuleUnreadableError as error:
            yield f"{one.file} cannot be read: {error}"
            continue
        if found != one:
            names = [name for name in one.__struct_fields__ if getattr(found, name) != getattr(one, name)]
            yield f"{one.file} has another {' and '.join(names)} than its manifest says"
    for name, text in (("load-order", load_order(manifest)), ("modules.sha256", checksums(manifest))):
        if files.text(name) != text:
            yield f"/driver/{name} is not that of its manifest"


def _modules(
    modules: tuple[Path, ...],
    manifest: DriverManifest,
    identity: Identity,
    kernels: KernelTrees,
    user_space: Path | None,
    certificate: Path | None,
) -> tuple[Verdict, ...]:
    headers, why = None, ""
    try:
        headers = kernels.headers(identity)
    except ArchiveError as error:
        why = f"not looked at, as its kernel's headers are not in the store: {error.brief}"
    contents, *others = verify_modules(
        modules,
        headers=headers,
        driver=identity.driver,
        expected=[one.name for one in manifest.modules],
        tree=user_space,
        certificate=certificate,
    )
    needs_headers = {CheckName.VERMAGIC, CheckName.CRC} if why else set()
    reasoned = (msgspec.structs.replace(one, reason=why) if one.check in needs_headers else one for one in others)
    if contents.passed is not True:
        return (_wrong(contents.reason)[0], *reasoned)
    holds = f"{len(modules)} modules, their digests and inputs are as the manifest inside and the label say"
    return (Verdict(check=CheckName.MANIFEST, passed=True, reason=holds), *reasoned)


def _boot(identity: Identity, kernels: KernelTrees, modules: tuple[Path, ...]) -> Verdict:
    try:
        tree = kernels.image(identity)
    except ArchiveError as error:
        return _skipped(CheckName.BOOT, f"not looked at, as its kernel is not in the store: {error.brief}")
    verdict, _ = boot.boot_modules(boot.find_kernel(tree, identity.kernel), modules)
    return verdict
