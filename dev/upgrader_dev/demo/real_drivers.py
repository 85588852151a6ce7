"""NVIDIA's kernel modules for virtual nodes: built as driver images, pushed, and declared.

These machines have no GPU. `fakebridge` emulates a PCI bridge with NVIDIA's vendor id in the kernel, so that the
unmodified driver stays loaded.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.api.resources import DRIVER_IMAGES
from upgrader.core.driver_build.build_results import BuildResult
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.assembly import take_modules
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.publish.publication import Publisher
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.layout import Layout
from upgrader.process.places import Progress
from upgrader_dev.demo.manifests import Manifest

OS = "bookworm"
REPOSITORY = "drivers"


class DeclaredDriver(Struct, frozen=True, kw_only=True):
    """A driver in the spec of a stack."""

    recipe: str
    version: str


OPEN = DeclaredDriver(recipe="nvidia-open", version="535.261.03")
PROPRIETARY = DeclaredDriver(recipe="nvidia", version="535.309.01")
PARAMETERS = {"nvidia.NVreg_EnableStreamMemOPs": "1"}
"""Parameters of NVIDIA's modules in the stacks. The default is 0, so that a validation shows that they are used."""
_HARDWARE = DeclaredDriver(recipe="fakebridge", version="1.0")


def build_hardware(kernels: Sequence[str], folder: Path, progress: Progress) -> dict[str, Path]:
    """Build the module that emulates the hardware, by kernel, as files in a folder.

    Raises:
        ConfigurationError: it cannot be built here; with the first error.
    """
    site = Site(WorkspaceSettings(), progress)
    modules = {}
    for kernel in kernels:
        (built,) = _build_drivers(site, [(_HARDWARE, kernel)])
        (module,) = take_modules(site.shelf.open_layout(built.digest), folder / kernel)
        modules[kernel] = module
    return modules


def build_layouts(requests: Sequence[tuple[DeclaredDriver, str]], progress: Progress) -> list[Layout]:
    """Images of drivers for kernels, on this machine; missing images are built.

    Raises:
        ConfigurationError: an image cannot be built; with the first error.
    """
    site = Site(WorkspaceSettings(), progress)
    return [site.shelf.open_layout(result.digest) for result in _build_drivers(site, requests)]


def push_drivers(
    registry: str, requests: Sequence[tuple[DeclaredDriver, str]], progress: Progress
) -> dict[tuple[DeclaredDriver, str], str]:
    """Images of drivers for kernels, in a registry; missing images are built. Returns `name@sha256:...`.

    Raises:
        ConfigurationError: an image cannot be built or pushed; with the first error.
    """
    site = Site(WorkspaceSettings(), progress)
    publisher = Publisher(f"{registry}/{REPOSITORY}", site.shelf, insecure=(registry,), keys=None, progress=progress)
    results = _build_drivers(site, requests, publisher)
    return {requested: result.digest for requested, result in zip(requests, results, strict=True)}


def driver_image(driver: DeclaredDriver, kernel: str, image: str) -> Manifest:
    """A DriverImage of a real driver that is in a registry."""
    flavour = "open" if driver.recipe.endswith("-open") else "proprietary"
    return {
        "apiVersion": DRIVER_IMAGES.api_version,
        "kind": DRIVER_IMAGES.kind,
        "metadata": {"name": f"{driver.recipe}-{driver.version}-{kernel}"},
        "spec": {
            "vendor": "nvidia",
            "recipe": driver.recipe,
            "flavour": flavour,
            "version": driver.version,
            "kernel": kernel,
            "os": OS,
            "image": image,
        },
    }


def _build_drivers(
    site: Site,
    requests: Sequence[tuple[DeclaredDriver, str]],
    publisher: Publisher | None = None,
) -> list[BuildResult]:
    catalog: Catalog = site.current_catalog()
    cells = [
        Cell(
            identity=site.find_identity(catalog, driver=driver.version, kernel=kernel, os=OS, recipe=driver.recipe),
        )
        for driver, kernel in requests
    ]
    with site.open_round(site.matrix_cells(catalog), publisher=publisher, parallel=1) as builds:
        results = list(builds.run(cells))
    for result in results:
        if result.failure is not None:
            raise ConfigurationError(f"no image of {result.identity}", details=result.failure.first_error)
    return results
