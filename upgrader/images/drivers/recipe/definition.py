"""All inputs of an image, pinned before the build: a build definition, as in SLSA.

It can be written to a file and built elsewhere with only a package store and a checkout.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.driver_build.driver_builds import Identity, Input, build_key, hash_facts
from upgrader.core.driver_build.driver_recipes import Recipe
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.images.debian import names
from upgrader.images.debian.values import ArchiveDiscovery, DebianKernel, Package
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.toolchain import Toolchain

ASSEMBLY = "2"
"""Increased when the same inputs give a different image."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}|")


class BuildDefinition(Struct, frozen=True, kw_only=True):
    """One image before its build. `modules` are in load order; `signer` is the SHA-256 of the certificate that signs
    them.

    `source` is empty if the source is in the recipe's folder; `services` are in the recipe's order. `key` covers the
    identity and `inputs`.

    Raises:
        HostileNameError: a name is invalid as a folder, a file or an argument of a command line.
        ConfigurationError: identity, kernel and toolchain do not match.
    """

    identity: Identity
    modules: tuple[str, ...]
    kernel: DebianKernel
    toolchain: Toolchain
    source: tuple[Package, ...]
    user_space: tuple[Package, ...]
    services: tuple[Package, ...] = ()
    inputs: tuple[Input, ...]
    signer: str = ""

    def __post_init__(self) -> None:
        identity = self.identity
        for word in (
            identity.recipe,
            identity.vendor,
            *([identity.flavour] if identity.flavour else []),
            *self.modules,
        ):
            names.check_text(word, _WORD, "the name of a recipe, a vendor, a flavour or a module")
        names.check_text(self.signer, _FINGERPRINT, "the fingerprint of a certificate")
        names.check_version(identity.driver)
        kernel, chain = self.kernel, self.toolchain
        if (identity.kernel, identity.os, identity.arch) != (kernel.release, kernel.os, kernel.arch):
            raise ConfigurationError(f"{identity} does not match the kernel {kernel.release} of {kernel.os}")
        if (chain.os, chain.compiler) != (kernel.os, kernel.compiler):
            raise ConfigurationError(f"{kernel.release} was compiled with {kernel.compiler}, not {chain.compiler}")

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.identity, self.inputs)

    @property
    def packages(self) -> tuple[Package, ...]:
        """All packages that the store needs for the build and the boot check."""
        return (*self.kernel.packages, *self.toolchain.packages, *self.source, *self.user_space, *self.services)


def define_image(
    recipe: RecipeFolder,
    *,
    driver: str,
    kernel: DebianKernel,
    discovery: ArchiveDiscovery,
    toolchain: Toolchain,
    builder: Sequence[Input],
    modules: Sequence[str] = (),
    signer: str = "",
) -> BuildDefinition:
    """Pin all inputs of one image. `builder` are the inputs of the build machine: the image's programs and buildah.

    Raises:
        MissingPackageError: no archive has a package in the driver's version; the error names the available versions.
        ConfigurationError: the recipe does not have the driver or a module.
    """
    facts = recipe.recipe
    if facts.versions and driver not in facts.versions:
        raise ConfigurationError(f"{recipe.name} has version {' or '.join(facts.versions)}, not {driver}")
    try:
        chosen = facts.load_order(modules)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    source = discovery.driver_source((facts.package,), driver, kernel.os) if facts.package else ()
    beside = discovery.driver_source((*facts.user_space, *facts.firmware), driver, kernel.os)
    services = tuple(
        discovery.service_package(service.name, service.package, driver, kernel.os) for service in facts.services
    )
    own = [package.build_input for package in (*kernel.headers, *source, *beside, *services)]
    options = [_option_input("modules", " ".join(chosen)), _option_input("assembly", ASSEMBLY)]
    options += [_option_input("module-signer", signer)] if signer else []
    return BuildDefinition(
        identity=identity_of(recipe.name, facts, driver, kernel),
        modules=chosen,
        kernel=kernel,
        toolchain=toolchain,
        source=source,
        user_space=beside,
        services=services,
        inputs=tuple(sorted([*own, recipe.build_input, *builder, *toolchain.build_inputs, *options])),
        signer=signer,
    )


def identity_of(name: str, recipe: Recipe, driver: str, kernel: DebianKernel) -> Identity:
    """The identity of a recipe's image."""
    return Identity(
        vendor=recipe.vendor,
        recipe=name,
        driver=driver,
        flavour=recipe.flavour,
        kernel=kernel.release,
        os=kernel.os,
        arch=kernel.arch,
    )


def _option_input(name: str, value: str) -> Input:
    return Input(kind="option", name=name, version=value, sha256=hash_facts(value, 64))


def encode_definition(definition: BuildDefinition) -> bytes:
    """The definition as JSON, for a build on another machine."""
    return msgspec.json.format(msgspec.json.encode(definition)) + b"\n"


def decode_definition(data: bytes) -> BuildDefinition:
    """Decode the output of `encode_definition`.

    Raises:
        ConfigurationError: the data are not a definition.
    """
    try:
        return untrusted.decode_json(data, BuildDefinition, untrusted.FILE_BYTES)
    except UnreadableError as error:
        raise ConfigurationError("this is not a build definition", details=str(error)) from error
