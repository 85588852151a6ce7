"""Everything that an image is made of, pinned before anything is built: a build definition, as SLSA calls it.

It can be written to a file and built elsewhere, from nothing but a package store and a checkout.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.driver_build.driver_builds import Identity, Input, build_key, digits
from upgrader.core.driver_build.driver_recipes import Recipe
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.images.debian import names
from upgrader.images.debian.values import Discovery, Kernel, Package
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.toolchain import Toolchain

ASSEMBLY = "1"
"""Changed when the same inputs are made into another image."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}|")


class Definition(Struct, frozen=True, kw_only=True):
    """One image before it is built. `modules` are in load order; `signer` is the SHA-256 of the key that signs them.

    `source` is empty where the source lies in the recipe's folder; `key` is over the identity and `inputs`.

    Raises:
        HostileNameError: a name that becomes a folder, a file or a word of a command line is none.
        ConfigurationError: identity, kernel and toolchain are not of one another.
    """

    identity: Identity
    modules: tuple[str, ...]
    kernel: Kernel
    toolchain: Toolchain
    source: tuple[Package, ...]
    user_space: tuple[Package, ...]
    inputs: tuple[Input, ...]
    signer: str = ""

    def __post_init__(self) -> None:
        one = self.identity
        for word in (one.recipe, one.vendor, *([one.flavour] if one.flavour else []), *self.modules):
            names.matching(word, _WORD, "the name of a recipe, a vendor, a flavour or a module")
        names.matching(self.signer, _FINGERPRINT, "the fingerprint of a certificate")
        names.version(one.driver)
        kernel, chain = self.kernel, self.toolchain
        if (one.kernel, one.os, one.arch) != (kernel.release, kernel.os, kernel.arch):
            raise ConfigurationError(f"{one} is not of the kernel {kernel.release} of {kernel.os}")
        if (chain.os, chain.compiler) != (kernel.os, kernel.compiler):
            raise ConfigurationError(f"{kernel.release} was compiled with {kernel.compiler}, not {chain.compiler}")

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.identity, self.inputs)

    @property
    def packages(self) -> tuple[Package, ...]:
        """All that has to be in the store to build and to boot it."""
        return (*self.kernel.packages, *self.toolchain.packages, *self.source, *self.user_space)


def define(
    recipe: RecipeFolder,
    *,
    driver: str,
    kernel: Kernel,
    discovery: Discovery,
    toolchain: Toolchain,
    builder: Sequence[Input],
    modules: Sequence[str] = (),
    signer: str = "",
) -> Definition:
    """Pin all inputs of one image; `builder` are those of the machine that makes it: its programs and buildah.

    Raises:
        MissingPackageError: a package is in no archive in the driver's version; the versions that are there are named.
        ConfigurationError: the recipe has no such driver or module.
    """
    said = recipe.recipe
    if said.versions and driver not in said.versions:
        raise ConfigurationError(f"{recipe.name} is version {' or '.join(said.versions)}, not {driver}")
    try:
        chosen = said.closed(modules)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    source = discovery.driver_source((said.package,), driver, kernel.os) if said.package else ()
    beside = discovery.driver_source((*said.user_space, *said.firmware), driver, kernel.os)
    own = [one.input for one in (*kernel.headers, *source, *beside)]
    options = [_option("modules", " ".join(chosen)), _option("assembly", ASSEMBLY)]
    options += [_option("module-signer", signer)] if signer else []
    return Definition(
        identity=identity_of(recipe.name, said, driver, kernel),
        modules=chosen,
        kernel=kernel,
        toolchain=toolchain,
        source=source,
        user_space=beside,
        inputs=tuple(sorted([*own, recipe.input, *builder, *toolchain.inputs, *options])),
        signer=signer,
    )


def identity_of(name: str, recipe: Recipe, driver: str, kernel: Kernel) -> Identity:
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


def _option(name: str, value: str) -> Input:
    return Input(kind="option", name=name, version=value, sha256=digits(value, 64))


def encode(definition: Definition) -> bytes:
    """As JSON, to be built elsewhere."""
    return msgspec.json.format(msgspec.json.encode(definition)) + b"\n"


def decode(data: bytes) -> Definition:
    """What `encode` has made.

    Raises:
        ConfigurationError: the data are something else.
    """
    try:
        return untrusted.decode(data, Definition, untrusted.FILE_BYTES)
    except UnreadableError as error:
        raise ConfigurationError("this is no build definition", details=str(error)) from error
