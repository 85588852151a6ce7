import asyncio
import hashlib
import os
import re
import shutil
import sys
import threading

import pytest
from aiohttp import web

from tests.support.file_server import serving
from tests.support.packages import package
from upgrader.core.driver_build.driver_builds import FailureClass
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.errors import (
    DiskFullError,
    HashMismatchError,
    MissingPackageError,
    PackagesInUseError,
    UnreachableArchiveError,
)
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.process import ProgramFailedError, run

DATA = os.urandom(300_000)
KBUILD = package("linux-kbuild-6.1", "6.1.176-1", DATA)


@pytest.fixture
def mirror(tmp_path):
    """A folder with one package where its path says."""
    path = tmp_path / "mirror/debian" / KBUILD.path
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    return tmp_path / "mirror"


@pytest.fixture
def keyring(tmp_path):
    (tmp_path / "keyring.gpg").write_bytes(b"")
    return tmp_path / "keyring.gpg"


@pytest.fixture
def no_retries(tmp_path, monkeypatch):
    settings = tmp_path / "machine.conf"
    settings.write_text('Acquire::Retries "0";')
    monkeypatch.setenv("APT_CONFIG", str(settings))


def store(tmp_path, address, keyring, **more):
    archives = Archives(bases={"debian": f"{address}/debian/"}, keyring=keyring)
    return PackageStore(tmp_path / "packages", Fetcher(tmp_path / "apt", archives, **more))


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks")


@pytest.fixture
def local(tmp_path, mirror, keyring):
    """A store on an archive in a folder."""
    return store(tmp_path, f"file:{mirror}", keyring)


def test_a_package_is_fetched_once_and_kept_by_its_digest(local, mirror):
    digest = KBUILD.sha256
    assert not local.has_package(KBUILD)
    path = local.fetch(KBUILD)
    assert path == local.folder / "sha256" / digest[:2] / digest
    assert (path.read_bytes(), path.is_symlink(), path.stat().st_mode & 0o777) == (DATA, False, 0o444)
    shutil.rmtree(mirror)
    assert local.has_package(KBUILD)
    assert local.fetch_all([KBUILD, KBUILD]) == (path, path)
    assert files(local.folder) == [digest]


def test_a_package_that_the_archive_dropped_before_it_was_fetched(local, mirror):
    shutil.rmtree(mirror)
    with pytest.raises(MissingPackageError) as missing:
        local.fetch(KBUILD)
    assert missing.value.kind is FailureClass.HEADERS_MISSING
    assert missing.value.brief == "the archive no longer has linux-kbuild-6.1_6.1.176-1_amd64.deb"
    assert files(local.folder) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("linux-headers-6.1.0-47-amd64", FailureClass.HEADERS_MISSING),
        ("linux-compiler-gcc-12-x86", FailureClass.TOOLCHAIN_MISSING),
        ("nvidia-kernel-dkms", FailureClass.UNSUPPORTED),
    ],
)
def test_what_a_package_is_for_says_how_its_absence_is_filed(tmp_path, name, kind):
    with pytest.raises(MissingPackageError) as missing:
        PackageStore(tmp_path).fetch(package(name))
    assert missing.value.failure().kind is kind
    assert missing.value.failure().final


def test_over_http_what_is_gone_is_gone_and_what_fails_is_doubt(tmp_path, mirror, keyring, no_retries):
    async def broken(_request):
        return web.Response(status=503)

    with serving(mirror) as address, pytest.raises(MissingPackageError):
        store(tmp_path, address, keyring).fetch(package("nvidia-kernel-dkms"))
    with serving(mirror, answer=broken) as address, pytest.raises(UnreachableArchiveError) as doubt:
        store(tmp_path, address, keyring).fetch(KBUILD)
    assert not doubt.value.failure().final


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_what_is_not_the_package_of_the_index_never_enters(tmp_path, mirror, keyring, scheme):
    other = DATA[:-1] + bytes([DATA[-1] ^ 1])
    (mirror / "debian" / KBUILD.path).write_bytes(other)
    with serving(mirror) as address:
        asked = store(tmp_path, f"file:{mirror}" if scheme == "file" else address, keyring)
        with pytest.raises(HashMismatchError) as mismatch:
            asked.fetch(KBUILD)
    assert (mismatch.value.wanted, mismatch.value.got) == (KBUILD.sha256, hashlib.sha256(other).hexdigest())
    assert KBUILD.sha256 in str(mismatch.value)
    assert mismatch.value.got in str(mismatch.value)
    assert files(asked.folder) == []


class Trusting:
    """A source that checks nothing, as one that trusts its archive."""

    def __init__(self, data):
        self.data = data
        self.asked = 0

    def download(self, archive, path, sha256, target):
        self.asked += 1
        target.write_bytes(self.data)


def test_the_digest_is_compared_whatever_the_source_did(tmp_path):
    asked = PackageStore(tmp_path, Trusting(b"other"))
    with pytest.raises(HashMismatchError, match=r"linux-kbuild-6\.1 6\.1\.176-1 differs from the signed index"):
        asked.fetch(KBUILD)
    assert files(tmp_path) == []


def test_a_package_that_changed_in_the_store_is_fetched_again(local):
    path = local.fetch(KBUILD)
    path.chmod(0o644)
    path.write_bytes(DATA[:-1] + b"x")
    assert local.fetch(KBUILD).read_bytes() == DATA


def half(folder, data):
    (folder / "partial").mkdir(parents=True)
    (folder / "partial" / KBUILD.sha256).write_bytes(data)


def test_half_a_download_is_gone_on_with(tmp_path, mirror, keyring):
    seen = []
    half(tmp_path / "packages", DATA[:200_000])
    with serving(mirror, seen=seen) as address:
        path = store(tmp_path, address, keyring).fetch(KBUILD)
    assert path.read_bytes() == DATA
    assert [request.headers["Range"] for request in seen] == ["bytes=200000-"]


@pytest.mark.parametrize("left", [b"x" * 200_000, DATA + b"x", DATA[:-1] + b"x"], ids=["another", "longer", "changed"])
def test_what_is_no_beginning_of_it_is_fetched_from_the_start(tmp_path, mirror, keyring, left):
    half(tmp_path / "packages", left)
    with serving(mirror) as address:
        assert store(tmp_path, address, keyring).fetch(KBUILD).read_bytes() == DATA
    assert files(tmp_path / "packages") == [KBUILD.sha256]


def test_a_download_that_takes_too_long_is_doubt_and_what_came_stays(tmp_path, mirror, keyring):
    async def stalling(request):
        answer = web.StreamResponse(headers={"Content-Length": str(len(DATA))})
        await answer.prepare(request)
        await answer.write(DATA[:100_000])
        await asyncio.Event().wait()

    with serving(mirror, answer=stalling) as address, pytest.raises(UnreachableArchiveError, match="too long") as slow:
        store(tmp_path, address, keyring, seconds=2).fetch(KBUILD)
    assert not slow.value.failure().final
    assert (tmp_path / "packages/partial" / KBUILD.sha256).read_bytes() == DATA[:100_000]


def test_one_process_at_a_time_fetches_a_package(tmp_path):
    entered, go = threading.Event(), threading.Event()

    class Slow(Trusting):
        def download(self, *args):
            entered.set()
            assert go.wait(30)
            super().download(*args)

    source = Slow(DATA)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(PackageStore(tmp_path, source).fetch(KBUILD))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)
    assert (source.asked, len(set(found)), len(found)) == (1, 1, 4)


FULL = """
import sys
from pathlib import Path
from tests.support.packages import package
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.errors import DiskFullError

folder, source, data = (Path(one) for one in sys.argv[1:])
archives = Archives(bases={"debian": f"file:{source}/debian/"}, keyring=data)
kbuild = package("linux-kbuild-6.1", "6.1.176-1", data.read_bytes())
try:
    if "add" in folder.name:
        PackageStore(folder).add(kbuild, data)
    else:
        PackageStore(folder, Fetcher(source / "apt", archives)).fetch(kbuild)
except DiskFullError as error:
    print(error.brief, [path.name for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks"])
"""
ON_A_SMALL_DISK = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1" "$4" "$5"'


@pytest.mark.parametrize("way", ["add", "fetch"])
def test_where_the_disk_is_full_nothing_half_written_stays(tmp_path, mirror, way):
    folder = tmp_path / f"small-{way}"
    folder.mkdir()
    (tmp_path / "data").write_bytes(DATA)
    words = ["sh", "-c", ON_A_SMALL_DISK, "sh", folder, sys.executable, FULL, mirror, tmp_path / "data"]
    try:
        said = run(
            ["unshare", "--mount", "--map-root-user", *words], timeout=60, env={"PYTHONPATH": ":".join(sys.path)}
        )
    except ProgramFailedError as error:
        if re.search(r"unshare|mount", error.details):
            pytest.skip("no mount namespaces for us here")
        raise
    assert said.text == f"no space left in {folder} for linux-kbuild-6.1 6.1.176-1 []"


def test_a_source_that_finds_the_disk_full_leaves_nothing(tmp_path):
    class Full:
        def download(self, archive, path, sha256, target):
            target.write_bytes(b"half")
            raise DiskFullError(target.parent, path)

    with pytest.raises(DiskFullError):
        PackageStore(tmp_path, Full()).fetch(KBUILD)
    assert files(tmp_path) == []


def test_a_package_is_placed_under_a_name_of_ones_own(local, tmp_path):
    name = tmp_path / "here"
    assert local.link_to(KBUILD, name) == local.link_to(KBUILD, name) == name
    assert name.stat().st_ino == local.package_path(KBUILD).stat().st_ino


def test_a_file_is_taken_when_it_is_the_package(tmp_path):
    (tmp_path / "good").write_bytes(DATA)
    (tmp_path / "bad").write_bytes(DATA + b"x")
    kept = PackageStore(tmp_path / "packages")
    with pytest.raises(HashMismatchError):
        kept.add(KBUILD, tmp_path / "bad")
    assert files(kept.folder) == []
    assert kept.add(KBUILD, tmp_path / "good").read_bytes() == DATA
    assert (tmp_path / "good").exists()


# Sweeping


def test_packages_are_deleted_by_who_is_alone_with_them(tmp_path):
    kept = PackageStore(tmp_path)
    refused = pytest.raises(PackagesInUseError, match="so none was deleted")
    with kept.in_use(), PackageStore(tmp_path).in_use(), refused, kept.exclusive_use():
        pytest.fail("somebody uses them")
    with kept.exclusive_use():
        assert kept.stored_sizes() == {}


def test_who_comes_while_packages_are_swept_waits_and_says_so(tmp_path):
    said, entered, waiting = [], threading.Event(), threading.Event()

    def build():
        with PackageStore(tmp_path).in_use(lambda line: (said.append(line), waiting.set())):
            entered.set()

    thread = threading.Thread(target=build)
    with PackageStore(tmp_path).exclusive_use():
        thread.start()
        assert waiting.wait(30)
        assert not entered.is_set()
    thread.join(30)
    assert (entered.is_set(), said) == (True, [f"waiting for a sweep of the packages in {tmp_path}"])


def test_what_is_there_and_what_is_deleted_of_it(tmp_path):
    (tmp_path / "good").write_bytes(DATA)
    kept = PackageStore(tmp_path / "packages")
    kept.add(KBUILD, tmp_path / "good")
    half = "f" * 64
    for name in (half, KBUILD.sha256, "foreign"):
        (kept.folder / "partial" / name).write_bytes(b"half")
    assert kept.stored_sizes() == {KBUILD.sha256: len(DATA) + 4, half: 4}
    kept.remove(KBUILD.sha256)
    assert (kept.has_package(KBUILD), kept.stored_sizes()) == (False, {half: 4})
    kept.remove(half)
    kept.remove(half)
    assert (kept.stored_sizes(), (kept.folder / "partial/foreign").exists()) == ({}, True)
