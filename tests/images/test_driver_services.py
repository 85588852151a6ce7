"""The services of the recipes of this checkout, from the real packages of the archives."""

import msgspec
import pytest

from upgrader.core.node_protocol.driver_services import DriverService
from upgrader.images.debian.versions import sort_key
from upgrader.images.drivers.builder.assembly import lay_files
from upgrader.images.drivers.recipe.services import find_service_faults, shipped_services
from upgrader.images.drivers.workspace import Site, WorkspaceSettings

pytestmark = pytest.mark.images


@pytest.fixture(scope="module")
def site():
    return Site(WorkspaceSettings(), print)


@pytest.mark.parametrize("os", ["bookworm", "trixie"])
@pytest.mark.parametrize("name", ["nvidia", "nvidia-open"])
def test_the_services_of_each_driver_fit_it(site, catalog, tmp_path, name, os):
    cells = site.matrix_cells(catalog)
    recipe = cells.recipes[name]
    releases = [kernel.release for kernel in catalog.discovery.kernels if (kernel.os, kernel.flavour) == (os, "amd64")]
    kernel = min(releases, key=sort_key)
    for driver in catalog.driver_versions(recipe, os):
        identity = site.find_identity(catalog, driver=driver, kernel=kernel, recipe=name)
        # The other packages are large, and their contents do not matter here.
        definition = msgspec.structs.replace(cells.define_identity(identity), user_space=())
        files = tmp_path / driver
        lay_files(definition, recipe, site.packages, files, tmp_path / f"packages-{driver}")
        services = shipped_services(recipe, definition.services, files)
        assert [service.name for service in services] == [DriverService.PERSISTENCED]
        assert list(find_service_faults(services, driver, files)) == []
        assert [str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()] == [services[0].program]
