"""Archives of others over each other: what belongs together gets there, and nothing is written anywhere else."""

import hashlib
import io
import tarfile

import msgspec
import pytest

from tests.support.driver_images import CONFIG, LAYER
from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.drivers.builder.assembly import unpack_driver
from upgrader.images.drivers.builder.trees import make_root, unpack_package
from upgrader.images.layout import MANIFEST, LayoutWriter
from upgrader.process import run


def tar(*members):
    """An archive of (name, bytes), of (name, link target) and of (name, None) for a folder."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, what in members:
            info = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size = len(what)
                archive.addfile(info, io.BytesIO(what))
                continue
            info.type, info.mode = (tarfile.DIRTYPE, 0o755) if what is None else (tarfile.SYMTYPE, 0o777)
            info.linkname = what or ""
            archive.addfile(info)
    return whole.getvalue()


@pytest.fixture
def image(tmp_path):
    def made(*layers):
        layout = LayoutWriter(tmp_path / "image")
        put = [layout.put_blob(LAYER, tar(*members)) for members in layers]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": layout.put_blob(CONFIG, b"{}"), "layers": put}
        return layout.write_index(layout.put_blob(MANIFEST, msgspec.json.encode(manifest)))

    return made


@pytest.fixture
def package(tmp_path):
    """Packages with (path, bytes) or (path, link target) in them."""

    def made(name, *files):
        tree = tmp_path / f"{name}.tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: us <us@example.org>\nDescription: a test\n"
        )
        for path, what in files:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, bytes):
                (tree / path).write_bytes(what)
            else:
                (tree / path).symlink_to(what)
        file = tmp_path / f"{hashlib.sha256(name.encode()).hexdigest()}.deb"
        run(["dpkg-deb", "--build", "--root-owner-group", tree, file], timeout=60)
        return file

    return made


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "foreign").write_text("foreign")
    yield folder
    assert [one.name for one in folder.iterdir()] == ["foreign"]
    assert (folder / "foreign").read_text() == "foreign"


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "upwards"])
@pytest.mark.parametrize("name", ["pwned", "foreign"])
def test_a_layer_does_not_get_out_through_a_link_of_the_one_below(image, tmp_path, elsewhere, relative, name):
    target = "../../elsewhere" if relative else str(elsewhere)
    layout = image([("driver/x", target)], [(f"driver/x/{name}", b"evil")])
    with pytest.raises(ProcessError, match=r"below driver/x, which is a link to no folder of the archive"):
        unpack_driver(layout, tmp_path / "root")


def test_a_layer_does_not_get_out_by_several_links(image, tmp_path, elsewhere):
    layout = image(
        [("driver/a", "b/c"), ("driver/b", None), ("driver/b/c", "../../../elsewhere")], [("driver/a/pwned", b"evil")]
    )
    with pytest.raises(ProcessError, match="driver/a"):
        unpack_driver(layout, tmp_path / "root")


@pytest.mark.parametrize("target", ["nowhere", "x", "file"])
def test_a_link_that_leads_to_no_folder_is_refused(image, tmp_path, target):
    layout = image([("driver/x", target), ("driver/file", b"")], [("driver/x/y", b"")])
    with pytest.raises(ProcessError, match="driver/x"):
        unpack_driver(layout, tmp_path / "root")


@pytest.mark.parametrize(
    "name", ["driver/lib/.wh.old.ko", "driver/.wh..wh..opq", ".wh.driver", "./.wh.driver", "etc/.wh.passwd", ".wh.a\nb"]
)
def test_a_layer_that_takes_files_away_is_refused(image, tmp_path, name):
    layout = image([("driver/lib/old.ko", b"")], [("driver/new", b""), (name, b"")])
    with pytest.raises(ConfigurationError, match="deletes files of an earlier layer") as refused:
        unpack_driver(layout, tmp_path / "root")
    said = f"{layout.blobs[1].digest} has the whiteout {name}".replace("\n", r"\n")
    assert refused.value.details == said


def test_a_name_that_only_looks_like_a_whiteout_is_none(image, tmp_path):
    unpack_driver(image([("driver/a.wh.b", b"1"), ("driver/.what", b"2")]), tmp_path / "root")
    assert sorted(one.name for one in (tmp_path / "root/driver").iterdir()) == [".what", "a.wh.b"]


def test_a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(image, tmp_path, elsewhere):
    layout = image([("driver/x", str(elsewhere / "foreign"))], [("driver/x", b"own")])
    unpack_driver(layout, tmp_path / "root")
    assert (tmp_path / "root/driver/x").read_bytes() == b"own"


def test_layers_are_put_over_each_other(image, tmp_path):
    layout = image(
        [("driver/d/a", b"1"), ("driver/d/b", b"1"), ("driver/link", "d"), ("driver/f", b"a file")],
        [("driver/d/b", b"2"), ("driver/link/c", b"2"), ("driver/f", None), ("driver/f/g", b"2"), ("other", b"")],
    )
    unpack_driver(layout, tmp_path / "root")
    found = {str(one.relative_to(tmp_path / "root")): one for one in (tmp_path / "root").rglob("*")}
    assert {name: path.read_bytes() for name, path in found.items() if path.is_file()} == {
        "driver/d/a": b"1",
        "driver/d/b": b"2",
        "driver/d/c": b"2",
        "driver/f/g": b"2",
    }
    assert found["driver/link"].readlink().name == "d"


def test_a_file_over_a_folder_is_an_error_and_no_crash(image, tmp_path):
    layout = image([("driver/d/a", b"1")], [("driver/d", b"2")])
    with pytest.raises(ProcessError, match="cannot be unpacked"):
        unpack_driver(layout, tmp_path / "root")


def test_a_package_does_not_get_out_through_a_link_of_another(package, tmp_path, elsewhere):
    make_root(tmp_path / "root")
    unpack_package(package("first", ("usr/x", str(elsewhere))), tmp_path / "root")
    with pytest.raises(ProcessError, match=r"below usr/x, which is a link"):
        unpack_package(package("second", ("usr/x/pwned", b"evil")), tmp_path / "root")


def test_packages_that_still_have_bin_get_to_usr_bin(package, tmp_path):
    root = tmp_path / "root"
    make_root(root)
    unpack_package(package("old", ("bin/sh", b"sh"), ("lib/x/one", b"1")), root)
    unpack_package(package("new", ("usr/bin/tool", b"tool"), ("usr/lib/x/two", b"2")), root)
    unpack_package(package("also-old", ("lib/x/three", b"3")), root)
    assert str((root / "bin").readlink()) == "usr/bin"
    files = {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}
    assert files == {"usr/bin/sh", "usr/bin/tool", "usr/lib/x/one", "usr/lib/x/two", "usr/lib/x/three"}
    assert {one.name for one in root.iterdir()} == {"bin", "sbin", "lib", "lib64", "usr"}
