"""NVIDIA's own generator of CDI specifications on the files that a driver image leaves on a node."""

import os

import msgspec
import pytest

from tests.support.module_image import ModuleImage
from upgrader.images.drivers.builder.assembly import lay_files
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.process import run
from upgrader_dev.devcluster.base.binaries import find_program
from upgrader_dev.devcluster.base.versions import NVIDIA_CTK

pytestmark = [
    pytest.mark.images,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files"),
]
VERSION, KERNEL = "535.261.03", "6.1.0-50-amd64"
MODULES = (("nvidia", ""), ("nvidia_uvm", "nvidia"))
LIBRARIES = {"libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"}


class Edits(msgspec.Struct, rename="camel"):
    """What a CDI specification changes in a container."""

    device_nodes: list[dict[str, object]] = []
    mounts: list[dict[str, object]] = []


class Device(msgspec.Struct, rename="camel"):
    name: str
    container_edits: Edits


class Specification(msgspec.Struct, rename="camel"):
    """https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"""

    devices: list[Device]
    container_edits: Edits

    def host_paths(self) -> set[str]:
        edits = [self.container_edits, *(device.container_edits for device in self.devices)]
        items = [item for edit in edits for item in (*edit.device_nodes, *edit.mounts)]
        return {str(item.get("hostPath", item.get("path"))) for item in items}


@pytest.fixture
def image(tmp_path, catalog):
    """An image with the real libraries, tools and firmware; the node's kernel is played, so that no GPU is needed."""
    image = ModuleImage(tmp_path, vendor="nvidia", version=VERSION, modules=MODULES)
    site = Site(WorkspaceSettings(), print)
    identity = site.find_identity(catalog, driver=VERSION, kernel=KERNEL, recipe="nvidia-open")
    cells = site.matrix_cells(catalog)
    definition = cells.define_identity(identity)
    lay_files(definition, cells.recipes["nvidia-open"], site.packages, image.driver / "files", tmp_path / "packages")
    (image.proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    return image


def test_nvidias_generator_finds_every_library_below_current(image, tmp_path):
    image.load()
    root = image.host / "var/lib/gpu-upgrader/drivers/nvidia/current"
    output = tmp_path / "nvidia.json"
    places = [f"--driver-root={root}", f"--dev-root={image.host}", f"--output={output}"]
    run([find_program(NVIDIA_CTK, print), "cdi", "generate", "--mode=management", *places], timeout=60)
    specification = msgspec.json.decode(output.read_bytes(), type=Specification)
    paths = specification.host_paths()
    assert [path for path in paths if not os.path.lexists(path)] == []
    assert {f"{root}/usr/lib/x86_64-linux-gnu/{name}.{VERSION}" for name in LIBRARIES} <= paths
    assert {f"{image.host}/dev/nvidiactl", f"{image.host}/dev/nvidia0", f"{root}/usr/bin/nvidia-smi"} <= paths
    assert any(path.startswith(f"{root}/lib/firmware/nvidia/{VERSION}/gsp_") for path in paths)
