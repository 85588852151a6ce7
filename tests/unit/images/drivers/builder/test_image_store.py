"""Built images in one OCI layout: found by key, the newest of an identity tagged, and nothing half kept."""

import json
import threading

import msgspec
import pytest

from tests.support.driver_builds import identity, layout, record
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.image_store import REF_NAME, FailureStore, Shelf


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "shelf")


def tags(shelf):
    index = json.loads((shelf.folder / "index.json").read_bytes())
    return {one["digest"]: one["annotations"].get(REF_NAME) for one in index["manifests"]}


def test_an_empty_shelf_has_nothing(shelf):
    assert (shelf.find_record("a" * 64), shelf.list_records()) == (None, ())


def test_a_kept_image_is_found_by_its_key_and_is_whole(shelf, tmp_path):
    image = layout(tmp_path / "one")
    shelf.add_image(image, record(image))
    assert shelf.find_record("a" * 64) == record(image)
    kept = shelf.open_layout(image.image.digest)
    assert kept.is_intact()
    assert kept.blobs == image.blobs
    assert tags(shelf) == {image.image.digest: identity().tag}
    assert json.loads((shelf.folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


def test_the_newest_of_an_identity_has_its_tag_and_the_older_one_stays(shelf, tmp_path):
    old, new = layout(tmp_path / "old", b"old"), layout(tmp_path / "new", b"new")
    shelf.add_image(old, record(old, "a" * 64))
    shelf.add_image(new, record(new, "b" * 64))
    assert tags(shelf) == {old.image.digest: None, new.image.digest: identity().tag}
    assert shelf.find_record("a" * 64) is not None


def test_removing_deletes_what_no_other_image_has(shelf, tmp_path):
    one, two = layout(tmp_path / "one", b"one"), layout(tmp_path / "two", b"two")
    shelf.add_image(one, record(one, "a" * 64))
    shelf.add_image(two, record(two, "b" * 64, identity=identity(driver="535")))
    assert shelf.remove_images(["a" * 64]) == one.blobs[0].size + one.image.size  # both have the same configuration
    assert shelf.find_record("a" * 64) is None
    assert shelf.open_layout(two.image.digest).is_intact()
    assert len(list((shelf.folder / "blobs/sha256").iterdir())) == 3


def test_a_record_without_its_image_is_none(shelf, tmp_path):
    image = layout(tmp_path / "one")
    shelf.add_image(image, record(image))
    (shelf.folder / "index.json").unlink()
    assert (shelf.find_record("a" * 64), shelf.list_records()) == (None, ())


def test_killed_before_the_index_nothing_is_seen_of_it(shelf, tmp_path, monkeypatch):
    first, second = layout(tmp_path / "first", b"first"), layout(tmp_path / "second", b"second")
    shelf.add_image(first, record(first, "a" * 64))
    monkeypatch.setattr(Shelf, "_write_index", _killed)
    with pytest.raises(KeyboardInterrupt):
        shelf.add_image(second, record(second, "b" * 64))
    monkeypatch.undo()
    assert (shelf.find_record("b" * 64), len(shelf.list_records())) == (None, 1)
    shelf.add_image(second, record(second, "b" * 64))
    assert len(shelf.list_records()) == 2


def _killed(_self, _entries):
    raise KeyboardInterrupt


def test_many_at_once_lose_none(shelf, tmp_path):
    def keep(number):
        image = layout(tmp_path / str(number), str(number).encode())
        shelf.add_image(image, record(image, f"{number:064x}", identity=identity(driver=str(number))))

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shelf.list_records()) == len(tags(shelf)) == 12


def test_a_folder_that_is_something_else_is_refused(shelf):
    shelf.folder.mkdir()
    (shelf.folder / "index.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="not an OCI layout"):
        Shelf(shelf.folder).remove_images([])


def red(kind):
    failure = BuildFailure(kind=kind, first_error="too few arguments", symbol="f")
    return BuildResult(identity=identity(), state=CellState.RED, failure=failure, build_key="c" * 64, seconds=34.0)


@pytest.mark.parametrize("kind", list(FailureClass))
def test_only_a_failure_that_would_come_again_is_remembered(tmp_path, kind):
    remembered = FailureStore(tmp_path)
    remembered.add_failure(red(kind))
    passes = kind in {FailureClass.TRANSIENT, FailureClass.PUSH}
    kept = None if passes else msgspec.structs.replace(red(kind), seconds=0.0)
    assert FailureStore(tmp_path).find_failure("c" * 64) == kept


def test_green_cells_are_no_failures(tmp_path):
    green = msgspec.structs.replace(red(FailureClass.COMPILE), state=CellState.GREEN, failure=None)
    FailureStore(tmp_path).add_failure(green)
    assert FailureStore(tmp_path).find_failure("c" * 64) is None


@pytest.mark.parametrize("damage", [b"", b"{", b'{"identity": 1}', b"\xff"])
def test_a_half_file_is_no_file_and_that_is_said(tmp_path, damage):
    said = []
    image = layout(tmp_path / "one")
    shelf, remembered = Shelf(tmp_path / "shelf", said.append), FailureStore(tmp_path / "shelf", said.append)
    shelf.add_image(image, record(image))
    remembered.add_failure(red(FailureClass.COMPILE))
    for place in ("records", "failures"):
        (path,) = (tmp_path / "shelf/upgrader" / place).iterdir()
        path.write_bytes(damage)
    assert (shelf.find_record("a" * 64), shelf.list_records(), remembered.find_failure("c" * 64)) == (None, (), None)
    assert [line.partition(": ")[0].rpartition("/")[2] for line in said] == [
        *(["a" * 64 + ".json cannot be read and counts as absent"] * 2),
        "c" * 64 + ".json cannot be read and counts as absent",
    ]
    shelf.add_image(image, record(image))
    assert shelf.find_record("a" * 64) == record(image)


@pytest.mark.parametrize("damage", ["missing", "cut off"])
def test_an_image_that_lost_a_blob_is_built_again_and_kept_whole(tmp_path, damage):
    said = []
    image = layout(tmp_path / "one")
    shelf = Shelf(tmp_path / "shelf", said.append)
    shelf.add_image(image, record(image))
    blob = shelf.open_layout(image.image.digest).blob_path(image.blobs[0])
    blob.unlink()
    if damage == "cut off":
        blob.write_bytes(b"x")
    assert shelf.find_record("a" * 64) is None
    assert said == [f"{identity()}: counts as not built, since {blob} is missing or truncated"]
    shelf.add_image(image, record(image))
    assert shelf.open_layout(image.image.digest).is_intact()
    assert shelf.find_record("a" * 64) == record(image)
