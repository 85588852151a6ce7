"""Labels of an image's configuration, which anybody sees without unpacking it; those that say which driver it is."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity
from upgrader.images.layout import Descriptor, Layout
from upgrader.images.reference import parse
from upgrader.images.registry import RegistryClient
from upgrader.images.wire import decode

CONFIG_LIMIT = 4 << 20
"""Most bytes of a configuration; one of ours has some hundred."""

_PREFIX = "gpu-upgrader.io/"


class _Config(Struct, frozen=True, kw_only=True):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Image(Struct, frozen=True, kw_only=True):
    config: _Config = _Config()


class Parts(Struct, frozen=True, kw_only=True):
    """What the manifest of one image names."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


def identity_labels(identity: Identity) -> dict[str, str]:
    """What an image's labels say of its identity; a fact that is empty has none."""
    return {f"{_PREFIX}{name}": value for name in Identity.__struct_fields__ if (value := getattr(identity, name))}


def said_of_identity(labels: Mapping[str, str]) -> dict[str, str]:
    """The fields of an identity that labels have."""
    return {name: labels[f"{_PREFIX}{name}"] for name in Identity.__struct_fields__ if f"{_PREFIX}{name}" in labels}


def decode_labels(config: bytes) -> dict[str, str]:
    """The labels of a configuration.

    Raises:
        ValueError: it is none of an image.
    """
    return decode(config, _Image).config.labels or {}


async def registry_labels(registry: RegistryClient, image: str) -> dict[str, str] | None:
    """The labels of `name@sha256:...`; None where the registry says that it has no such image.

    Raises:
        RegistryError: it does not answer, or with something else than it was asked for.
        ValueError: what it has is not one image.
    """
    found = await registry.manifest(image)
    if found is None:
        return None
    config = decode(found.data, Parts).config
    return decode_labels(await registry.blob(config, parse(image), limit=CONFIG_LIMIT))


def layout_labels(layout: Layout) -> dict[str, str]:
    """The labels of the image of a layout.

    Raises:
        ValueError: its configuration is none, or is not there.
    """
    try:
        return decode_labels(layout.path(layout.blobs[-1]).read_bytes())
    except OSError as error:
        raise ValueError(str(error)) from error
