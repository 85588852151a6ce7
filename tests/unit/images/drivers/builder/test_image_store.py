"""Built images in one OCI layout: found by key, the newest of an identity tagged, and nothing half kept."""

import json
import threading

import msgspec
import pytest

from tests.support.driver_builds import identity, layout, record
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import Failure, FailureClass
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.image_store import REF_NAME, Remembered, Shelf


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "shelf")


def tags(shelf):
    index = json.loads((shelf.folder / "index.json").read_bytes())
    return {one["digest"]: one["annotations"].get(REF_NAME) for one in index["manifests"]}


def test_an_empty_shelf_has_nothing(shelf):
    assert (shelf.record("a" * 64), shelf.records()) == (None, ())


def test_a_kept_image_is_found_by_its_key_and_is_whole(shelf, tmp_path):
    image = layout(tmp_path / "one")
    shelf.keep(image, record(image))
    assert shelf.record("a" * 64) == record(image)
    kept = shelf.layout(image.image.digest)
    assert kept.whole()
    assert kept.blobs == image.blobs
    assert tags(shelf) == {image.image.digest: identity().tag}
    assert json.loads((shelf.folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_the_newest_of_an_identity_has_its_tag_and_the_older_one_stays(shelf, tmp_path):
    old, new = layout(tmp_path / "old", b"old"), layout(tmp_path / "new", b"new")
    shelf.keep(old, record(old, "a" * 64))
    shelf.keep(new, record(new, "b" * 64))
    assert tags(shelf) == {old.image.digest: None, new.image.digest: identity().tag}
    assert shelf.record("a" * 64) is not None


def test_removing_deletes_what_no_other_image_has(shelf, tmp_path):
    one, two = layout(tmp_path / "one", b"one"), layout(tmp_path / "two", b"two")
    shelf.keep(one, record(one, "a" * 64))
    shelf.keep(two, record(two, "b" * 64, identity=identity(driver="535")))
    assert shelf.remove(["a" * 64]) == one.blobs[0].size + one.image.size  # both have the same configuration
    assert shelf.record("a" * 64) is None
    assert shelf.layout(two.image.digest).whole()
    assert len(list((shelf.folder / "blobs/sha256").iterdir())) == 3


def test_a_record_without_its_image_is_none(shelf, tmp_path):
    image = layout(tmp_path / "one")
    shelf.keep(image, record(image))
    (shelf.folder / "index.json").unlink()
    assert (shelf.record("a" * 64), shelf.records()) == (None, ())


def test_killed_before_the_index_nothing_is_seen_of_it(shelf, tmp_path, monkeypatch):
    first, second = layout(tmp_path / "first", b"first"), layout(tmp_path / "second", b"second")
    shelf.keep(first, record(first, "a" * 64))
    monkeypatch.setattr(Shelf, "_write", _killed)
    with pytest.raises(KeyboardInterrupt):
        shelf.keep(second, record(second, "b" * 64))
    monkeypatch.undo()
    assert (shelf.record("b" * 64), len(shelf.records())) == (None, 1)
    shelf.keep(second, record(second, "b" * 64))
    assert len(shelf.records()) == 2


def _killed(_self, _entries):
    raise KeyboardInterrupt


def test_many_at_once_lose_none(shelf, tmp_path):
    def keep(number):
        image = layout(tmp_path / str(number), str(number).encode())
        shelf.keep(image, record(image, f"{number:064x}", identity=identity(driver=str(number))))

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shelf.records()) == len(tags(shelf)) == 12


def test_a_folder_that_is_something_else_is_refused(shelf):
    shelf.folder.mkdir()
    (shelf.folder / "index.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="no OCI layout"):
        Shelf(shelf.folder).remove([])


def red(kind):
    failure = Failure(kind=kind, first_error="too few arguments", symbol="f")
    return BuildResult(identity=identity(), state=CellState.RED, failure=failure, build_key="c" * 64, seconds=34.0)


@pytest.mark.parametrize("kind", list(FailureClass))
def test_only_a_failure_that_would_come_again_is_remembered(tmp_path, kind):
    remembered = Remembered(tmp_path)
    remembered.keep(red(kind))
    passes = kind in {FailureClass.TRANSIENT, FailureClass.PUSH}
    kept = None if passes else msgspec.structs.replace(red(kind), seconds=0.0)
    assert Remembered(tmp_path).find("c" * 64) == kept


def test_green_cells_are_no_failures(tmp_path):
    green = msgspec.structs.replace(red(FailureClass.COMPILE), state=CellState.GREEN, failure=None)
    Remembered(tmp_path).keep(green)
    assert Remembered(tmp_path).find("c" * 64) is None


@pytest.mark.parametrize("damage", [b"", b"{", b'{"identity": 1}', b"\xff"])
def test_a_half_file_is_no_file_and_that_is_said(tmp_path, damage):
    said = []
    image = layout(tmp_path / "one")
    shelf, remembered = Shelf(tmp_path / "shelf", said.append), Remembered(tmp_path / "shelf", said.append)
    shelf.keep(image, record(image))
    remembered.keep(red(FailureClass.COMPILE))
    for place in ("records", "failures"):
        (path,) = (tmp_path / "shelf/upgrader" / place).iterdir()
        path.write_bytes(damage)
    assert (shelf.record("a" * 64), shelf.records(), remembered.find("c" * 64)) == (None, (), None)
    assert [line.partition(": ")[0].rpartition("/")[2] for line in said] == [
        *(["a" * 64 + ".json cannot be read and counts as absent"] * 2),
        "c" * 64 + ".json cannot be read and counts as absent",
    ]
    shelf.keep(image, record(image))
    assert shelf.record("a" * 64) == record(image)


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_an_image_that_lost_a_blob_is_built_again_and_kept_whole(tmp_path, damage):
    said = []
    image = layout(tmp_path / "one")
    shelf = Shelf(tmp_path / "shelf", said.append)
    shelf.keep(image, record(image))
    blob = shelf.layout(image.image.digest).path(image.blobs[0])
    blob.unlink()
    if damage == "cut off":
        blob.write_bytes(b"x")
    assert shelf.record("a" * 64) is None
    assert said == [f"{identity()}: taken for not built, as {blob} is missing or cut off"]
    shelf.keep(image, record(image))
    assert shelf.layout(image.image.digest).whole()
    assert shelf.record("a" * 64) == record(image)
