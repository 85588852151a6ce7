"""Images as one file."""

import hashlib
import json
import tarfile

import msgspec
import pytest

from upgrader.images.archive import write_archive, write_joint_archive
from upgrader.images.layout import Layout, LayoutWriter, listed_images


@pytest.fixture
def layout(tmp_path):
    folder = tmp_path / "layout"
    (folder / "blobs/sha256").mkdir(parents=True)

    def blob(data):
        digits = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256" / digits).write_bytes(data)
        return {"mediaType": "application/octet-stream", "digest": f"sha256:{digits}", "size": len(data)}

    manifest = {"schemaVersion": 2, "config": blob(b"{}"), "layers": [blob(b"layer")]}
    index = {"schemaVersion": 2, "manifests": [blob(json.dumps(manifest).encode())]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return Layout(folder)


def test_the_archive_holds_the_layout_and_is_the_same_each_time(layout, tmp_path):
    first, second = tmp_path / "build/first.tar", tmp_path / "second.tar"
    write_archive(layout, first)
    (layout.folder / "index.json").touch()
    write_archive(layout, second)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        archive.extractall(tmp_path / "again", filter="data")
    again = Layout(tmp_path / "again")
    assert (again.image, again.is_intact()) == (layout.image, True)
    assert [path.name for path in first.parent.iterdir()] == ["first.tar"]


def one_of(folder, *layers):
    """A layout in a folder that may hold others' blobs."""
    writer = LayoutWriter(folder)
    made = [writer.put_blob("application/octet-stream", layer) for layer in layers]
    config = writer.put_blob("application/octet-stream", b"{}")
    manifest = {"schemaVersion": 2, "config": config, "layers": made}
    return writer.write_index(
        writer.put_blob("application/vnd.oci.image.manifest.v1+json", msgspec.json.encode(manifest))
    )


def test_several_images_share_an_archive_with_each_blob_once_and_nothing_else(tmp_path):
    first, second = one_of(tmp_path / "a", b"common", b"first"), one_of(tmp_path / "b", b"common", b"second")
    (tmp_path / "a/blobs/sha256/0123").write_bytes(b"of an image that nobody asked for")
    write_joint_archive([first, second], tmp_path / "both.tar")

    with tarfile.open(tmp_path / "both.tar") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "again", filter="data")
    # two manifests, layers "common", "first" and "second", one configuration
    assert sorted(names)[-2:] == ["index.json", "oci-layout"]
    assert (len(names), len(set(names))) == (8, 8)
    assert listed_images(tmp_path / "again") == (first.image, second.image)
    assert all(Layout(tmp_path / "again", one.image.digest).is_intact() for one in (first, second))
