"""An image as one file."""

import hashlib
import json
import tarfile

import pytest

from upgrader.images.archive import write_archive
from upgrader.images.layout import Layout


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
    assert (again.image, again.whole()) == (layout.image, True)
    assert [path.name for path in first.parent.iterdir()] == ["first.tar"]
