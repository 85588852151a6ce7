"""What the archives had, kept between two looks; a kernel is one of its own distribution."""

from pathlib import Path

import msgspec
import pytest

from tests.support.driver_builds import DISCOVERY, RELEASE, kernel, toolchain
from tests.support.driver_images import asked
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.drivers.builder.catalog import FILE, Catalog, load_catalog
from upgrader.images.drivers.recipe.recipes import read_recipes

CATALOG = Catalog(discovery=DISCOVERY, toolchains=(toolchain(),))


def test_it_is_saved_and_loaded_whole(tmp_path):
    assert load_catalog(tmp_path) is None
    CATALOG.save(tmp_path)
    assert load_catalog(tmp_path) == CATALOG


@pytest.mark.parametrize("change", [("linux-kbuild-6.12_", "../../x_"), ('"size"', '"sice"'), ("{", "")])
def test_a_saved_file_that_was_changed_by_hand_is_refused(tmp_path, change):
    CATALOG.save(tmp_path)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace(*change))
    with pytest.raises(ConfigurationError):
        load_catalog(tmp_path)


def test_a_kernel_of_another_distribution_is_not_taken_for_it():
    both = msgspec.structs.replace(DISCOVERY, kernels=(kernel(), kernel(os="sid")))
    found = msgspec.structs.replace(CATALOG, discovery=both)
    assert [found.find_kernel(RELEASE, os).os for os in ("trixie", "sid", "")] == ["trixie", "sid", "trixie"]
    with pytest.raises(MissingPackageError, match=r"no archive of bookworm has the kernel .*; trixie has it"):
        found.find_kernel(RELEASE, "bookworm")
    with pytest.raises(MissingPackageError, match=r"no archive has the kernel 6\.1\.0-1-amd64"):
        found.find_kernel("6.1.0-1-amd64", "trixie")


def test_of_a_package_that_nobody_asked_for_a_catalog_knows_nothing():
    """A recipe that names one more package is not told that no archive has it: the archives are asked anew."""
    recipes = read_recipes(Path("driver-images"))
    whole = asked(Path("driver-images"))
    assert msgspec.structs.replace(CATALOG, names=whole).covers_recipes(recipes)
    assert not msgspec.structs.replace(CATALOG, names=tuple(set(whole) - {"nvidia-cuda-mps"})).covers_recipes(recipes)
