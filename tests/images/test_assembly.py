"""The same parts give the same image, whatever the umask of whoever assembles it, or checked the programs out."""

import os
import shutil

import pytest

from tests.support.driver_builds import definition
from tests.support.kernel_modules import Sample
from tests.support.repository import ROOT
from upgrader.images.drivers.builder.assembly import ImageContents, assemble_image, programs_input
from upgrader.images.drivers.recipe.recipes import read_recipe

pytestmark = [pytest.mark.images, pytest.mark.timeout(300)]


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_neither_key_nor_digest_knows_the_umask(tmp_path, umask):
    found = [_made(tmp_path / f"{mask:o}", mask, umask) for mask in (0o022, 0o002, 0o077)]
    assert found[0] == found[1] == found[2]


def _made(place, mask, umask):
    """Key of the programs and digest of an image that were checked out and assembled under a umask."""
    umask(mask)
    place.mkdir()
    root = place / "driver-images"
    for path in sorted(one for one in (ROOT / "driver-images").rglob("*") if one.is_file()):
        target = root / path.relative_to(ROOT / "driver-images")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod((0o777 if path.stat().st_mode & 0o100 else 0o666) & ~mask)
    (place / "base/usr/bin").mkdir(parents=True)
    (place / "base/usr/bin/busybox").write_bytes(b"busybox")
    (place / "base/usr/bin/busybox").chmod(0o755)
    (place / "files/usr/lib").mkdir(parents=True)
    (place / "files/usr/lib/libnvidia.so").write_bytes(b"library")
    recipe = read_recipe(root / "fakebridge")
    layout = assemble_image(
        definition(recipe, driver="1.0"),
        recipe,
        ImageContents(modules=(Sample(name="fakebridge").write(place),), files=place / "files"),
        base=place / "base",
        layout=place / "layout",
    )
    return programs_input(root), recipe.build_input, layout.image.digest
