"""The disk of virtual nodes, built twice from nothing: the same bytes, whoever builds it, wherever and whenever.

Both builds take the same Go programs and the same packages as they came from the archive; all else is made twice.
"""

import os
from pathlib import Path

import pytest

from tests.support.disks import differing, named
from upgrader.process.places import cache_root
from upgrader_dev.devcluster.virtual.image import find_image

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

SHARED = ("bin", "packages")
"""Known by their contents: what is built or fetched once is the same for both."""


@pytest.fixture
def build(tmp_path, monkeypatch):
    shared = cache_root()

    def made(name, umask):
        cache = tmp_path / name / "upgrader"
        cache.mkdir(parents=True)
        for one in SHARED:
            (shared / one).mkdir(parents=True, exist_ok=True)
            (cache / one).symlink_to(shared / one)
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
        before = os.umask(umask)
        try:
            found = find_image(print)
        finally:
            os.umask(before)
        assert found.folder.is_relative_to(cache)
        return found

    return made


def test_two_whole_builds_give_the_same_disk(build):
    first = build("first", 0o022)
    second = build("a-second-folder-with-a-longer-name", 0o077)

    places = differing(first.disk, second.disk)
    assert places == [], f"{len(places)} block(s) differ: {named(second.disk, places)}"
    assert first.folder.name == second.folder.name
    assert first.kernel.read_bytes() == second.kernel.read_bytes()
    assert Path(first.disk).stat().st_size == Path(second.disk).stat().st_size
