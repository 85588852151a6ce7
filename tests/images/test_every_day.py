"""Our small module and NVIDIA's own one, through the whole chain, for one real kernel; more of them every night."""

import pytest

from upgrader.core.driver_build.build_results import CellState
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.images.drivers.workspace import Site, WorkspaceSettings

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]

KERNEL = "6.1.0-50-amd64"
"""The open flavour of 535.261.03 builds for it, and for none that is newer."""

CHECKS = {
    CheckName.CONTENTS: True,
    CheckName.VERMAGIC: True,
    CheckName.CRC: True,
    CheckName.VERSIONS: True,
    CheckName.SIGNATURE: None,
    CheckName.BOOT: True,
}


@pytest.fixture(scope="module")
def build(catalog, tmp_path_factory):
    """Builds both into a store, at once: results in the order of fakebridge, nvidia."""
    sites = {
        name: Site(WorkspaceSettings(store=tmp_path_factory.mktemp(name) / "store"), print) for name in ("one", "two")
    }

    def run(name):
        site = sites[name]
        cells = site.matrix_cells(catalog)
        small = site.find_identity(catalog, driver="1.0", kernel=KERNEL, recipe="fakebridge")
        large = site.find_identity(catalog, driver="535.261.03", kernel=KERNEL, recipe="nvidia-open")
        with site.open_round(cells) as builds:
            return builds.run([Cell(identity=small), Cell(identity=large, modules=("nvidia",))])

    return run


@pytest.fixture(scope="module")
def first(build):
    return build("one")


def test_both_are_built_checked_and_booted(first):
    assert [(one.identity.recipe, one.state, one.failure) for one in first] == [
        ("fakebridge", CellState.GREEN, None),
        ("nvidia-open", CellState.GREEN, None),
    ]
    assert [{one.check: one.passed for one in result.checks} for result in first] == [CHECKS, CHECKS]
    booted = [one.reason for result in first for one in result.checks if one.check is CheckName.BOOT]
    assert "No NVIDIA GPU found" in booted[1], booted


def test_built_again_elsewhere_they_are_the_same_and_here_they_are_there(build, first):
    again, known = build("two"), build("one")
    wanted = [(one.build_key, one.digest) for one in first]
    assert [(one.build_key, one.digest) for one in again] == wanted
    assert [one.state for one in again] == [CellState.GREEN] * 2
    assert [(one.build_key, one.digest) for one in known] == wanted
    assert [(one.state, one.seconds) for one in known] == [(CellState.UNCHANGED, 0.0)] * 2
