"""The example of a third vendor: installed beside upgrader, it is used without a change of the product."""

import shutil
import sys
import tomllib

import pytest
from structlog.testing import capture_logs

from tests.support.repository import ROOT
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES, GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.controller import run
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.phases import NodePhase
from upgrader.core.model.vendors import NVIDIA
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
        vendors.read_entry_points.cache_clear()

    yield installed
    vendors.read_entry_points.cache_clear()


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


RESOLUTION = "Repair or uninstall acme-gpu-upgrader 1.0 where the controller is installed, and restart the controller."
BROKEN = [
    ("acme", "acme_missing:VENDOR", "ModuleNotFoundError: No module named 'acme_missing'"),
    ("acme", "acme_gpu_upgrader:MISSING", "AttributeError: module 'acme_gpu_upgrader' has no attribute 'MISSING'"),
    ("acme", "acme_broken:VENDOR", "RuntimeError: no licence"),
    ("acme", "acme_unreadable:VENDOR", "SyntaxError: invalid syntax"),
    ("acme", "acme_gpu_upgrader:SOCKETS", "its object is a Mount, not a Vendor"),
    ("other", "acme_gpu_upgrader:VENDOR", "its object is the vendor acme"),
]


@pytest.fixture
def modules(tmp_path):
    """A folder with the example and with modules that cannot be imported."""
    folder = tmp_path / "modules"
    shutil.copytree(EXAMPLE, folder)
    (folder / "acme_broken.py").write_text('raise RuntimeError("no licence")\n')
    (folder / "acme_unreadable.py").write_text("VENDOR = = 1\n")
    yield folder
    for name in ("acme_gpu_upgrader", "acme_broken", "acme_unreadable"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("name", "value", "error"), BROKEN)
def test_a_broken_vendor_is_the_error_of_its_own_stacks_only(install, modules, name, value, error):
    install({name: value}, modules)
    assert {"nvidia", "sim"} <= vendors.load_vendors().keys()
    assert name not in vendors.load_vendors()
    with pytest.raises(ConfigurationError) as caught:
        vendors.find_vendor(name)
    assert caught.value.brief == f"spec.driver: vendor {name} of acme-gpu-upgrader 1.0 ({value}) cannot be loaded"
    assert caught.value.details.startswith(error)
    assert caught.value.resolution == RESOLUTION


def test_a_name_of_two_distributions_belongs_to_neither(install, modules):
    install({"sim": "acme_gpu_upgrader:VENDOR"}, modules)
    with pytest.raises(ConfigurationError, match=r"acme-gpu-upgrader 1\.0 and gpu-upgrader-dev") as caught:
        vendors.find_vendor("sim")
    assert caught.value.resolution == "Uninstall all but one where the controller is installed, and restart it."


def test_no_distribution_replaces_nvidia(install, modules):
    install({"nvidia": "acme_gpu_upgrader:VENDOR"}, modules)
    assert vendors.find_vendor("nvidia").facts is NVIDIA
    assert "vendor nvidia of acme-gpu-upgrader 1.0" in vendors.broken_vendors()["nvidia"].brief


async def test_the_condition_of_its_stack_shows_the_reason_and_other_stacks_go_on(install, modules):
    install({"acme": "acme_missing:VENDOR"}, modules)
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    spec = rig.make_spec("1.0")
    rig.apply_stack(spec)
    of_acme = spec | {"nodeSelector": {"pool": "acme"}, "driver": spec["driver"] | {"vendor": "acme"}}
    rig.cluster.store.put(GPU_STACKS, {"metadata": {"name": "with-acme"}, "spec": of_acme})
    await rig.settle()
    (upgrade,) = rig.upgrades()
    assert upgrade.status.phase is NodePhase.SUCCEEDED, upgrade.status.message
    stacks = {stack.metadata.name: stack for stack in rig.list_objects(GPU_STACKS, GpuStack)}
    (valid,) = [condition for condition in stacks["with-acme"].status.conditions if condition.type == "Valid"]
    assert (valid.status, valid.reason) == ("False", "RevisionNotMade")
    first, *others = valid.message.splitlines()
    assert first == "spec.driver: vendor acme of acme-gpu-upgrader 1.0 (acme_missing:VENDOR) cannot be loaded"
    assert others == ["ModuleNotFoundError: No module named 'acme_missing'", RESOLUTION]


def test_the_controller_logs_it_once(install, modules):
    install({"acme": "acme_missing:VENDOR"}, modules)
    with capture_logs() as entries:
        run.log_broken_vendors()
        vendors.load_vendors()
    (entry,) = entries
    assert (entry["log_level"], entry["vendor"]) == ("error", "acme")
    assert "acme-gpu-upgrader 1.0" in entry["because"]
    assert "No module named 'acme_missing'" in entry["because"]
