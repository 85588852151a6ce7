"""What a driver image says about itself in /driver/manifest.json; docs/reference/node-contract.md says who reads it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Input, Verdict, build_key
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules.reading import read_module


class ShippedModule(Struct, frozen=True, kw_only=True):
    """A module of the image: `name` as /proc/modules has it, `file` below /driver."""

    name: str
    file: str
    sha256: str
    srcversion: str
    vermagic: str


class DriverManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The three that a shell reads come first; `modules` are in load order, after `in_tree` ones of the kernel.

    `checks` are those that were made of the files before the image was, and what came out. A simulated driver says so,
    and how many `devices` it simulates; no real driver says how many it has.
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
    in_tree: tuple[str, ...]
    modules: tuple[ShippedModule, ...]
    inputs: tuple[Input, ...]
    checks: dict[CheckName, bool | None]


def describe(
    identity: Identity,
    inputs: Sequence[Input],
    *,
    in_tree: Sequence[str] = (),
    modules: Sequence[ShippedModule],
    verdicts: Sequence[Verdict],
    devices: int = 0,
) -> DriverManifest:
    """The manifest of an image that is about to be made of these inputs."""
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
        in_tree=tuple(in_tree),
        modules=tuple(modules),
        inputs=tuple(inputs),
        checks={one.check: one.passed for one in verdicts},
    )


def shipped(path: Path, file: str) -> ShippedModule:
    """A module that is put at `file`."""
    module = read_module(path)
    return ShippedModule(
        name=module.name,
        file=file,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        srcversion=module.srcversion,
        vermagic=module.vermagic,
    )


def encoded(manifest: DriverManifest) -> bytes:
    """As JSON with one fact on a line, for shells."""
    return msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"


def read_manifest(path: Path) -> DriverManifest:
    """The manifest of an unpacked image.

    Raises:
        ConfigurationError: there is none, or it says something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=DriverManifest)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError("this is no image of a driver with modules", details=str(error)) from error


def load_order(manifest: DriverManifest) -> str:
    """The same for the programs of the image, which have no JSON: driver-images/modules/modules.sh."""
    lines = [f"in-tree {name}" for name in manifest.in_tree]
    lines += [f"module {one.name} {one.srcversion} {one.file}" for one in manifest.modules]
    return "".join(f"{line}\n" for line in lines)


def checksums(manifest: DriverManifest) -> str:
    """The same for sha256sum."""
    return "".join(f"{one.sha256}  {one.file}\n" for one in manifest.modules)
