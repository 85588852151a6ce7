"""The example of a third vendor: installed beside upgrader, it is used without a change of the product."""

import tomllib

import pytest

from tests.support.repository import ROOT
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.phases import NodePhase
from upgrader.stack import vendors
from upgrader_dev.simulated.cluster.rig import Rig

EXAMPLE = ROOT / "docs/examples/vendor"
POINTS = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"][vendors.ENTRY_POINTS]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install the modules of a folder with entry points of vendors, as pip does."""

    def installed(points, folder=EXAMPLE):
        metadata = tmp_path / "acme_gpu_upgrader-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-gpu-upgrader\nVersion: 1.0\n")
        lines = [f"[{vendors.ENTRY_POINTS}]", *(f"{name} = {value}" for name, value in points.items())]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.syspath_prepend(str(tmp_path))
        vendors.load_vendors.cache_clear()

    yield installed
    vendors.load_vendors.cache_clear()


async def test_its_nodes_are_installed_and_its_operands_run(install):
    install(POINTS)
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.registry.push("registry/acme:1.0", "acce10")
    image = {"vendor": "acme", "version": "1.0", "kernel": "6.1.0-47-amd64", "image": "registry/acme:1.0"}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "acme-1.0"}, "spec": image})
    spec = rig.make_spec("1.0")
    revision = rig.apply_stack(spec | {"driver": spec["driver"] | {"vendor": "acme"}})
    await rig.settle()
    (upgrade,) = rig.upgrades()
    assert upgrade.status.phase is NodePhase.SUCCEEDED, upgrade.status.message
    assert rig.nodes()[0]["metadata"]["labels"][names.LABEL_REVISION] == revision
    commands = {
        container["command"][0]
        for daemonset in rig.cluster.store.list_values(DAEMONSETS)
        for container in daemonset["spec"]["template"]["spec"]["containers"]
        if "command" in container
    }
    assert "acme-device-plugin" in commands


def test_the_example_has_few_lines():
    lines = (EXAMPLE / "acme_gpu_upgrader.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.lstrip().startswith(('"""', "#"))]) <= 30


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"acme": "acme_missing:VENDOR"}, "vendor acme .* cannot be imported"),
        ({"acme": "acme_gpu_upgrader:SOCKETS"}, "is not a Vendor of this name"),
        ({"other": "acme_gpu_upgrader:VENDOR"}, "vendor other .* is not a Vendor of this name"),
    ],
)
def test_a_broken_vendor_is_named(install, points, message):
    install(points)
    with pytest.raises(ConfigurationError, match=message):
        vendors.find_vendor("nvidia")
