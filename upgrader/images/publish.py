"""The product's images in a registry, ready to be named in stacks, pods and jobs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import escaped
from upgrader.images.layout import Layout
from upgrader.images.product import Images
from upgrader.images.registry import RegistryClient
from upgrader.process.places import Progress

REPOSITORY = "upgrader"


class Product(Struct, frozen=True, kw_only=True):
    """Images in a registry, each `name@sha256:...`; drivers, plugins and kubelets by version."""

    node: str
    upgrader: str
    trainer: str
    drivers: Mapping[str, str]
    plugins: Mapping[str, str]
    kubelets: Mapping[str, str]


class Programs(Struct, frozen=True, kw_only=True):
    """Where the static programs are that images are made of: the kubelet of a version, cosign. Both are found late."""

    kubelet: Callable[[str], Path]
    cosign: Callable[[], Path]


def push_product(
    registry: str,
    *,
    drivers: Sequence[str],
    kernel: str,
    kubelets: Sequence[str],
    programs: Programs,
    progress: Progress,
    plugins: Sequence[str] = ("1", "2"),
    images: Images | None = None,
) -> Product:
    """Build what is not built yet, and push what `registry` (host:port, spoken to without TLS) does not have.

    `drivers` are versions of the simulated driver, each for `kernel`; `kubelets` are versions; `plugins` are
    releases of the simulated device plugin.

    Raises:
        ConfigurationError: something needed to build is not there.
        ProcessError: buildah, pip or mmdebstrap ended with an error.
        RegistryError: the registry does not take an image.
    """
    with images or Images(progress) as made:
        layouts = product_layouts(made, kubelets=kubelets, plugins=plugins, programs=programs)
        layouts |= {f"driver:{_tag(version, kernel)}": made.driver(version, kernel) for version in drivers}
    pushed = asyncio.run(_push_all(registry, layouts, progress))
    return Product(
        node=pushed["node"],
        upgrader=pushed["controller"],
        trainer=pushed["trainer"],
        drivers={version: pushed[f"driver:{_tag(version, kernel)}"] for version in drivers},
        plugins={version: pushed[f"plugin:{version}"] for version in plugins},
        kubelets={version: pushed[f"kubelet:{version}"] for version in kubelets},
    )


def product_layouts(
    images: Images, *, kubelets: Sequence[str], programs: Programs, plugins: Sequence[str] = ("1", "2")
) -> dict[str, Layout]:
    """What `push_product` pushes beside simulated drivers, by name and tag; built where it is not there yet.

    Raises:
        ConfigurationError, ProcessError: as `push_product`.
    """
    return {
        "node": images.node(),
        "controller": images.upgrader(programs.cosign()),
        "trainer": images.trainer(),
        **{f"plugin:{version}": images.plugin(version) for version in plugins},
        **{f"kubelet:{version}": images.kubelet(version, programs.kubelet(version)) for version in kubelets},
    }


def push_driver(registry: str, *, version: str, kernel: str, progress: Progress) -> str:
    """One simulated driver for one kernel, pushed; `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.driver(version, kernel)
    name = f"driver:{_tag(version, kernel)}"
    return asyncio.run(_push_all(registry, {name: layout}, progress))[name]


def push_builder(registry: str, *, cosign: Path, progress: Progress) -> str:
    """The image of build pods, with that cosign, pushed; `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.builder(cosign)
    return asyncio.run(_push_all(registry, {"builder": layout}, progress))["builder"]


def push_kubelet(registry: str, *, tag: str, version: str, binary: Path, progress: Progress) -> str:
    """One kubelet artifact from a binary of one's own, pushed; `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.kubelet(version, binary)
    return asyncio.run(_push_all(registry, {f"kubelet:{tag}": layout}, progress))[f"kubelet:{tag}"]


def push_trainer(registry: str, *, progress: Progress) -> str:
    """The trainer's image, which has Python and workload.py, pushed; `name@sha256:...`. Errors as `push_product`."""
    with Images(progress) as made:
        layout = made.trainer()
    return asyncio.run(_push_all(registry, {"trainer": layout}, progress))["trainer"]


async def _push_all(registry: str, layouts: Mapping[str, Layout], progress: Progress) -> dict[str, str]:
    async with RegistryClient(insecure=(registry,)) as client:
        pushed = {}
        for name, layout in layouts.items():
            pushed[name] = await client.push(layout, f"{registry}/{REPOSITORY}/{name}")
        blobs = {blob.digest: blob.size for layout in layouts.values() for blob in layout.blobs}
        progress(f"{len(pushed)} image(s) in {registry}, {sum(blobs.values()) / 1e6:.0f} MB")
        return pushed


def _tag(version: str, kernel: str) -> str:
    """A tag for a driver on a kernel."""
    return escaped(f"{version}-{kernel}")
