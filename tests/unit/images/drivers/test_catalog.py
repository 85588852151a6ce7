"""What the archives had, kept between two looks; a kernel is one of its own distribution."""

import msgspec
import pytest

from tests.support.driver_builds import DISCOVERY, RELEASE, kernel, toolchain
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.drivers.catalog import FILE, Catalog, load

CATALOG = Catalog(discovery=DISCOVERY, toolchains=(toolchain(),))


def test_it_is_saved_and_loaded_whole(tmp_path):
    assert load(tmp_path) is None
    CATALOG.save(tmp_path)
    assert load(tmp_path) == CATALOG


@pytest.mark.parametrize("change", [("linux-kbuild-6.12_", "../../x_"), ('"size"', '"sice"'), ("{", "")])
def test_a_saved_file_that_was_changed_by_hand_is_refused(tmp_path, change):
    CATALOG.save(tmp_path)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace(*change))
    with pytest.raises(ConfigurationError):
        load(tmp_path)


def test_a_kernel_of_another_distribution_is_not_taken_for_it():
    both = msgspec.structs.replace(DISCOVERY, kernels=(kernel(), kernel(os="sid")))
    found = msgspec.structs.replace(CATALOG, discovery=both)
    assert [found.kernel(RELEASE, os).os for os in ("trixie", "sid", "")] == ["trixie", "sid", "trixie"]
    with pytest.raises(MissingPackageError, match=r"no archive of bookworm has the kernel .*; trixie has it"):
        found.kernel(RELEASE, "bookworm")
    with pytest.raises(MissingPackageError, match=r"no archive has the kernel 6\.1\.0-1-amd64"):
        found.kernel("6.1.0-1-amd64", "trixie")
