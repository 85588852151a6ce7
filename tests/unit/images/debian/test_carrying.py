import msgspec
import pytest

from tests.support.image_registry import write_layout
from tests.support.packages import package
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.carrying import pack_packages, unpack_packages
from upgrader.images.debian.errors import HashMismatchError, MissingPackageError
from upgrader.images.debian.store import PackageStore
from upgrader.images.layout import Layout

HEADERS, KBUILD = (
    package(name, data=name.encode() * 50) for name in ("linux-headers-6.1.0-47-amd64", "linux-kbuild-6.1")
)


@pytest.fixture
def store(tmp_path):
    held = PackageStore(tmp_path / "packages")
    for one in (HEADERS, KBUILD):
        (tmp_path / one.name).write_bytes(one.name.encode() * 50)
        held.add(one, tmp_path / one.name)
    return held


def test_a_set_of_packages_is_carried_whole(store, tmp_path):
    layout = pack_packages([HEADERS, KBUILD], store, tmp_path / "layout")
    assert layout.is_intact()
    there = PackageStore(tmp_path / "there")
    assert unpack_packages(Layout(tmp_path / "layout"), there) == tuple(sorted([HEADERS, KBUILD]))
    assert there.fetch(HEADERS).read_bytes() == store.fetch(HEADERS).read_bytes()
    assert there.has_package(KBUILD)
    assert unpack_packages(layout, there) == unpack_packages(layout, store)


def test_the_same_set_has_the_same_digest_in_whatever_order(store, tmp_path):
    orders = [[HEADERS, KBUILD], [KBUILD, HEADERS], [KBUILD, HEADERS, KBUILD]]
    layouts = [pack_packages(order, store, tmp_path / str(number)) for number, order in enumerate(orders)]
    assert len({layout.image for layout in layouts}) == 1
    assert pack_packages([HEADERS], store, tmp_path / "less").image != layouts[0].image


def test_a_package_that_is_nowhere_cannot_be_packed(store, tmp_path):
    with pytest.raises(MissingPackageError, match=r"linux-image-6\.1\.0-47-amd64 1 is not in"):
        pack_packages([HEADERS, package("linux-image-6.1.0-47-amd64")], store, tmp_path / "layout")
    with pytest.raises(ConfigurationError, match="contains no OCI layout"):
        Layout(tmp_path / "layout")


def test_a_changed_package_does_not_enter(store, tmp_path):
    layout = pack_packages([HEADERS], store, tmp_path / "layout")
    blob = tmp_path / "layout/blobs/sha256" / HEADERS.sha256
    blob.unlink()
    blob.write_bytes(b"other")
    with pytest.raises(HashMismatchError):
        unpack_packages(layout, PackageStore(tmp_path / "there"))
    assert not PackageStore(tmp_path / "there").has_package(HEADERS)


def test_a_missing_blob_is_named(store, tmp_path):
    layout = pack_packages([HEADERS], store, tmp_path / "layout")
    (tmp_path / "layout/blobs/sha256" / HEADERS.sha256).unlink()
    with pytest.raises(ConfigurationError, match=r"lacks the package linux-headers-6\.1\.0-47-amd64 1"):
        unpack_packages(layout, PackageStore(tmp_path / "there"))


def test_a_list_that_was_changed_is_refused(store, tmp_path):
    layout = pack_packages([HEADERS], store, tmp_path / "layout")
    config = layout.blob_path(layout.blobs[-1])
    config.write_bytes(msgspec.json.encode([KBUILD]))
    with pytest.raises(ConfigurationError, match="was changed"):
        unpack_packages(layout, PackageStore(tmp_path / "there"))


def test_an_image_of_something_else_is_no_set_of_packages(store, tmp_path):
    image = Layout(write_layout(tmp_path / "image", b"layer", b"{}"))
    with pytest.raises(ConfigurationError, match="is not a set of packages"):
        unpack_packages(image, store)
