"""Images really built: from nothing, over a base that somebody else made, and the same each time."""

import pytest

from upgrader.core.errors import ConfigurationError
from upgrader.images.archive import write_archive
from upgrader.images.product import Images

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def from_nothing(tmp_path_factory):
    """Base and trainer without any cache; the base also as an archive."""
    folder = tmp_path_factory.mktemp("nothing")
    with Images(print, cache=folder, base_image="") as images:
        base, trainer = images.base_image(), images.trainer_image()
    write_archive(base, folder / "base.tar")
    return base, trainer, folder / "base.tar"


def test_an_image_is_built_from_the_machines_own_archive(from_nothing):
    base, trainer, _ = from_nothing
    assert 0 < base.size < trainer.size


def test_the_same_over_any_base_image(from_nothing, tmp_path):
    base, trainer, archive = from_nothing
    with Images(print, cache=tmp_path / "a", base_image=str(base.folder)) as images:
        assert images.trainer_image().image.digest == trainer.image.digest
    with Images(print, cache=tmp_path / "b", base_image=f"oci-archive:{archive}") as images:
        built = images.trainer_image()
    assert built.image.digest
    assert built.size >= base.size


def test_a_base_image_that_cannot_be_pulled_is_an_error_with_a_way_out(tmp_path):
    missing = f"oci-archive:{tmp_path}/none.tar"
    with (
        Images(print, cache=tmp_path, base_image=missing) as images,
        pytest.raises(ConfigurationError, match="cannot be pulled") as refused,
    ):
        images.trainer_image()
    assert "BASE_IMAGE is the folder of an OCI layout" in str(refused.value)
