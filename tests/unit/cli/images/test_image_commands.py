"""`upgrader images matrix`: every cell is shown, whatever is wrong with one, and what builds in place of a red one."""

import json

import pytest
from click.testing import CliRunner

from tests.support.driver_builds import DISCOVERY, RELEASE, layout, record, toolchain
from upgrader.cli.main import program
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.workspace import Site, WorkspaceSettings

CELL = f"""
[[cells]]
recipe = "{{recipe}}"
os = "trixie"
drivers = ["newest"]
kernels = ["{RELEASE}"]
modules = {{modules}}
"""
RECIPE = """
vendor = "nvidia"
flavour = "{flavour}"
package = "nvidia-open-kernel-dkms"
make = ["modules"]
[[modules]]
name = "nvidia"
"""


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """A folder of them, a cache in which the archives were asked, and a buildah that has a version."""
    place = tmp_path / "driver-images"
    for name in ("kept", "failing", "odd"):
        (place / name).mkdir(parents=True)
        (place / name / "recipe.toml").write_text(RECIPE.format(flavour=name))
    cells = {"odd": '["nobody"]', "failing": "[]", "kept": "[]"}
    distribution = 'components = ["main"]\n[[distributions]]\nos = "trixie"\nsuites = ["trixie"]\n'
    wanted = (CELL.format(recipe=name, modules=modules) for name, modules in cells.items())
    (place / "matrix.toml").write_text(distribution + "".join(wanted))
    buildah = tmp_path / "bin/buildah"
    buildah.parent.mkdir()
    buildah.write_text("#!/bin/sh\necho buildah version 1.39.3\n")
    buildah.chmod(0o755)
    monkeypatch.setenv("PATH", f"{buildah.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Catalog(discovery=DISCOVERY, toolchains=(toolchain(),), names=("nvidia-open-kernel-dkms",)).save(
        tmp_path / "cache/upgrader/driver-builds"
    )
    return place


@pytest.fixture
def site(recipes):
    return Site(WorkspaceSettings(recipes=recipes), print)


def definition(site, recipe):
    cells = site.matrix_cells(site.current_catalog())
    return next(cells.define_cell(one) for one in cells.list_cells()[0] if one.identity.recipe == recipe)


def matrix(recipes, *words):
    return CliRunner().invoke(program, ["images", "matrix", "--recipes", str(recipes), *words])


def test_a_cell_that_cannot_be_defined_is_red_and_all_red_ones_name_what_builds(recipes, site, tmp_path):
    kept, failing = definition(site, "kept"), definition(site, "failing")
    image = layout(tmp_path / "image")
    site.shelf.add_image(image, record(image, kept.key, identity=kept.identity))
    failure = BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments", symbol="pci_resize_resource")
    ended = BuildResult(identity=failing.identity, state=CellState.RED, build_key=failing.key, failure=failure)
    site.remembered.add_failure(ended)
    shown = matrix(recipes, "--output", "json")
    assert shown.exit_code == 0, shown.output
    cells = json.loads(shown.stdout)["cells"]
    said = "no module nobody; this recipe has nvidia"
    assert [(one["flavour"], one["state"], one["alternatives"]) for one in cells] == [
        ("failing", "red", ["kept 550.163.01"]),
        ("kept", "unchanged", []),
        ("odd", "red", ["kept 550.163.01"]),
    ]
    assert [one["failure"] and (one["failure"]["class"], one["failure"]["first_error"]) for one in cells] == [
        ("compile", "too few arguments"),
        None,
        ("unsupported", said),
    ]
    assert shown.stderr == f"odd 550.163.01 for {RELEASE}: unsupported: {said}\n"
    assert matrix(recipes).stdout.count("drivers that build for this kernel: kept 550.163.01") == 2


def test_a_machine_without_buildah_knows_no_build_key_of_any_cell(recipes, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ended = matrix(recipes)
    assert (ended.exit_code, ended.stdout) == (ProcessError.exit_code, "")
    assert "buildah" in ended.stderr


def test_a_store_that_is_something_else_is_said_once(recipes, site, tmp_path):
    image = layout(tmp_path / "image")
    site.shelf.add_image(image, record(image))
    (site.shelf.folder / "index.json").write_text("[]")
    ended = matrix(recipes)
    assert (ended.exit_code, ended.stdout) == (ConfigurationError.exit_code, "")
    assert ended.stderr.count("is not an OCI layout") == 1
