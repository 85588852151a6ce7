"""Pushes this product's images to a registry, and returns the references for stacks, pods and jobs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import escape_tag
from upgrader.images.layout import Layout
from upgrader.images.product import Images
from upgrader.images.registry.client import RegistryClient
from upgrader.process.places import Progress

REPOSITORY = "upgrader"


class Product(Struct, frozen=True, kw_only=True):
    """Images in a registry, each as `name@sha256:...`; drivers, plugins and kubelets by version.

    `simulated_gpus`: node image with the operands of the vendor `sim`.
    """

    node: str
    simulated_gpus: str
    upgrader: str
    trainer: str
    drivers: Mapping[str, str]
    plugins: Mapping[str, str]
    kubelets: Mapping[str, str]


class StaticPrograms(Struct, frozen=True, kw_only=True):
    """Functions that return the paths of static programs: the kubelet of a version, and cosign. They are called on
    demand.
    """

    kubelet: Callable[[str], Path]
    cosign: Callable[[], Path]


def push_product(
    registry: str,
    *,
    drivers: Sequence[str],
    kernel: str,
    kubelets: Sequence[str],
    programs: StaticPrograms,
    progress: Progress,
    plugins: Sequence[str] = ("1", "2"),
    images: Images | None = None,
) -> Product:
    """Build the images that are missing, and push the blobs that `registry` (host:port, accessed without TLS) does not
    have.

    `drivers` are versions of the simulated driver, each for `kernel`; `kubelets` are versions; `plugins` are releases
    of the simulated device plugin.

    Raises:
        ConfigurationError: a requirement of the build is missing.
        ProcessError: buildah, pip or mmdebstrap fails.
        RegistryError: the registry rejects an image.
    """
    with images or Images(progress) as made:
        layouts = product_layouts(made, kubelets=kubelets, plugins=plugins, programs=programs)
        layouts |= {f"driver:{_driver_tag(version, kernel)}": made.driver_image(version, kernel) for version in drivers}
    pushed = asyncio.run(_push_all(registry, layouts, progress))
    return Product(
        node=pushed["node"],
        simulated_gpus=pushed["simulated-gpus"],
        upgrader=pushed["controller"],
        trainer=pushed["trainer"],
        drivers={version: pushed[f"driver:{_driver_tag(version, kernel)}"] for version in drivers},
        plugins={version: pushed[f"plugin:{version}"] for version in plugins},
        kubelets={version: pushed[f"kubelet:{version}"] for version in kubelets},
    )


def product_layouts(
    images: Images, *, kubelets: Sequence[str], programs: StaticPrograms, plugins: Sequence[str] = ("1", "2")
) -> dict[str, Layout]:
    """The images that `push_product` pushes, except simulated drivers, by name and tag. Missing images are built.

    Raises:
        ConfigurationError, ProcessError: as `push_product`.
    """
    return {
        "node": images.node_image(),
        "simulated-gpus": images.simulated_gpus_image(),
        "controller": images.upgrader_image(programs.cosign(), simulated_gpus=True),
        "trainer": images.trainer_image(),
        **{f"plugin:{version}": images.plugin_image(version) for version in plugins},
        **{f"kubelet:{version}": images.kubelet_image(version, programs.kubelet(version)) for version in kubelets},
    }


def push_driver(registry: str, *, version: str, kernel: str, progress: Progress) -> str:
    """Push one simulated driver for one kernel; returns `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.driver_image(version, kernel)
    name = f"driver:{_driver_tag(version, kernel)}"
    return asyncio.run(_push_all(registry, {name: layout}, progress))[name]


def push_builder(registry: str, *, cosign: Path, progress: Progress) -> str:
    """Push the image of build pods with the given cosign; returns `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.builder_image(cosign)
    return asyncio.run(_push_all(registry, {"builder": layout}, progress))["builder"]


def push_kubelet(registry: str, *, tag: str, version: str, binary: Path, progress: Progress) -> str:
    """Push a kubelet artifact from a given binary; returns `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.kubelet_image(version, binary)
    return asyncio.run(_push_all(registry, {f"kubelet:{tag}": layout}, progress))[f"kubelet:{tag}"]


def push_trainer(registry: str, *, progress: Progress) -> str:
    """Push the trainer's image with Python and workload.py; returns `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.trainer_image()
    return asyncio.run(_push_all(registry, {"trainer": layout}, progress))["trainer"]


async def _push_all(registry: str, layouts: Mapping[str, Layout], progress: Progress) -> dict[str, str]:
    async with RegistryClient(insecure=(registry,)) as client:
        pushed = {}
        for name, layout in layouts.items():
            pushed[name] = await client.push(layout, f"{registry}/{REPOSITORY}/{name}")
        blobs = {blob.digest: blob.size for layout in layouts.values() for blob in layout.blobs}
        progress(f"{len(pushed)} image(s) in {registry}, {sum(blobs.values()) / 1e6:.0f} MB")
        return pushed


def _driver_tag(version: str, kernel: str) -> str:
    """The tag for a driver on a kernel."""
    return escape_tag(f"{version}-{kernel}")
