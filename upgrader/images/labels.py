"""Labels of an image's configuration, readable without unpacking it. Some of them contain the driver's identity."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.node_protocol.driver_services import SERVICES_LABEL, DriverService
from upgrader.images.layout import Descriptor, Layout
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import parse_reference
from upgrader.images.wire import decode_json

CONFIG_LIMIT = 4 << 20
"""The largest accepted configuration in bytes. Configurations of driver images have some hundred bytes."""

_PREFIX = "gpu-upgrader.io/"


class _Config(Struct, frozen=True, kw_only=True):
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Image(Struct, frozen=True, kw_only=True):
    config: _Config = _Config()


class Parts(Struct, frozen=True, kw_only=True):
    """The descriptors in the manifest of one image."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


def identity_labels(identity: Identity) -> dict[str, str]:
    """The labels for an identity. An empty field has no label."""
    return {f"{_PREFIX}{name}": value for name in Identity.__struct_fields__ if (value := getattr(identity, name))}


def service_labels(services: Sequence[DriverService]) -> dict[str, str]:
    """The label for the services of an image. An image without services has none."""
    return {SERVICES_LABEL: ",".join(sorted(services))} if services else {}


def labelled_identity(labels: Mapping[str, str]) -> dict[str, str]:
    """The identity fields that the labels contain."""
    return {name: labels[f"{_PREFIX}{name}"] for name in Identity.__struct_fields__ if f"{_PREFIX}{name}" in labels}


def decode_labels(config: bytes) -> dict[str, str]:
    """The labels in a configuration.

    Raises:
        ValueError: the bytes are not an image's configuration.
    """
    return decode_json(config, _Image).config.labels or {}


async def registry_labels(registry: RegistryClient, image: str) -> dict[str, str] | None:
    """The labels of `name@sha256:...`, or None if the registry reports that it has no such image.

    Raises:
        RegistryError: the registry does not answer, or returns other contents than requested.
        ValueError: the reference is not a single image.
    """
    manifest = await registry.get_manifest(image)
    if manifest is None:
        return None
    config = decode_json(manifest.data, Parts).config
    return decode_labels(await registry.read_blob(config, parse_reference(image), limit=CONFIG_LIMIT))


def layout_labels(layout: Layout) -> dict[str, str]:
    """The labels of the image of a layout.

    Raises:
        ValueError: the configuration is missing or invalid.
    """
    try:
        return decode_labels(layout.blob_path(layout.blobs[-1]).read_bytes())
    except OSError as error:
        raise ValueError(str(error)) from error
