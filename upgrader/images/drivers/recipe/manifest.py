"""The manifest of a driver image, /driver/manifest.json; docs/reference/node-contract.md describes its readers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Input, Verdict, build_key
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.recipe.services import ShippedService
from upgrader.images.modules.reading import read_module


class ShippedModule(Struct, frozen=True, kw_only=True):
    """A module in the image: `name` as in /proc/modules, `file` relative to /driver.

    `depends`: modules whose symbols it imports, of the image or of the kernel, as its own field lists them.
    `optional`: the driver is loaded without it if the kernel rejects it. `parameters`: names of its parameters.
    """

    name: str
    file: str
    sha256: str
    srcversion: str
    vermagic: str
    depends: tuple[str, ...] = ()
    optional: bool = False
    parameters: tuple[str, ...] = ()


class DriverManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The first three fields are for a shell. `modules` are in load order.

    `checks` are the checks of the files before the image was assembled, and their results. A simulated driver has
    `simulated` and the number of its `devices`; a real driver has neither. Signed modules have `signerKeyId`, the id of
    the certificate in a kernel's keyrings.
    """

    vendor: str
    version: str
    kernel: str
    recipe: str
    flavour: str
    os: str
    arch: str
    build_key: str
    devices: int | UnsetType = UNSET
    simulated: bool | UnsetType = UNSET
    modules: tuple[ShippedModule, ...]
    services: tuple[ShippedService, ...] = ()
    inputs: tuple[Input, ...]
    checks: dict[CheckName, bool | None]
    signer_key_id: str | UnsetType = UNSET


def describe_image(
    identity: Identity,
    inputs: Sequence[Input],
    *,
    modules: Sequence[ShippedModule],
    verdicts: Sequence[Verdict],
    services: Sequence[ShippedService] = (),
    devices: int = 0,
    signer_key_id: str = "",
) -> DriverManifest:
    """The manifest of an image of these inputs."""
    return DriverManifest(
        vendor=identity.vendor,
        version=identity.driver,
        kernel=identity.kernel,
        recipe=identity.recipe,
        flavour=identity.flavour,
        os=identity.os,
        arch=identity.arch,
        build_key=build_key(identity, inputs),
        devices=devices or UNSET,
        simulated=True if devices else UNSET,
        modules=tuple(modules),
        services=tuple(services),
        inputs=tuple(inputs),
        checks={verdict.check: verdict.passed for verdict in verdicts},
        signer_key_id=signer_key_id or UNSET,
    )


def shipped_module(path: Path, file: str, *, optional: bool = False) -> ShippedModule:
    """The entry for a module that is stored at `file`."""
    module = read_module(path)
    return ShippedModule(
        name=module.name,
        file=file,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        srcversion=module.srcversion,
        vermagic=module.vermagic,
        depends=module.depends,
        optional=optional,
        parameters=module.parameters,
    )


def encode_manifest(manifest: DriverManifest) -> bytes:
    """The manifest as JSON with one field per line, for shells."""
    return msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"


def read_manifest(path: Path) -> DriverManifest:
    """The manifest of an unpacked image.

    Raises:
        ConfigurationError: the manifest is missing or invalid.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=DriverManifest)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError("this is not an image of a driver with modules", details=str(error)) from error


def load_order(manifest: DriverManifest) -> str:
    """The load order as text for programs that cannot parse JSON: driver-images/modules/modules.sh.

    insmod resolves no dependencies, so that the kernel's own modules come first. Each line ends with `required` or
    `optional`; a module of the kernel is optional if only optional modules depend on it.
    """
    own = {module.name for module in manifest.modules}
    in_tree: dict[str, bool] = {}
    for module in manifest.modules:
        for name in module.depends:
            if name not in own:
                in_tree[name] = in_tree.get(name, True) and module.optional
    lines = [f"in-tree {name} {_describe_need(optional)}" for name, optional in in_tree.items()]
    lines += [
        f"module {module.name} {module.srcversion} {module.file} {_describe_need(module.optional)}"
        for module in manifest.modules
    ]
    return "".join(f"{line}\n" for line in lines)


def _describe_need(optional: bool) -> str:  # noqa: FBT001 - the value of one field
    return "optional" if optional else "required"


def checksum_lines(manifest: DriverManifest) -> str:
    """The checksums as input of sha256sum."""
    return "".join(f"{module.sha256}  {module.file}\n" for module in manifest.modules)
