"""The real archives of this machine's apt: what they have today, and a package of it fetched."""

import time

import pytest

from upgrader.images.debian.archives import configured_archives
from upgrader.images.debian.discovery import News, compare_discoveries, discover_kernels
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.catalog import Catalog, load_catalog
from upgrader.process import run

SUITES = (
    "bookworm",
    "bookworm-security",
    "bookworm-backports",
    "trixie",
    "trixie-security",
    "trixie-backports",
)
COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
DRIVERS = ("nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "libnvidia-ml1", "firmware-nvidia-gsp")

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    started = time.monotonic()
    found = discover_kernels(SUITES, COMPONENTS, DRIVERS, folder=tmp_path_factory.mktemp("apt"))
    seconds = time.monotonic() - started
    print(f"{len(found.kernels)} kernels, {len(found.incomplete)} without headers, {seconds:.1f} s")  # noqa: T201
    return found


def test_every_flavour_of_both_distributions_is_there_whole(live):
    kinds = {(one.os, one.flavour) for one in live.kernels}
    assert kinds == {(os, flavour) for os in ("bookworm", "trixie") for flavour in ("amd64", "cloud-amd64", "rt-amd64")}
    for kernel in live.kernels:
        assert kernel.headers[0].name == f"linux-headers-{kernel.release}"
        assert {"common", "kbuild"} <= {part for one in kernel.headers for part in one.name.split("-")}
        assert kernel.image[0].name.startswith(f"linux-image-{kernel.release}")
    assert set(live.indices) == set(SUITES)


def test_there_are_drivers_in_several_versions(live):
    for name in DRIVERS:
        assert len(live.driver_versions(name)) >= 2, name


def test_a_second_look_finds_the_same(live, tmp_path):
    Catalog(discovery=live, toolchains=()).save(tmp_path)
    before = load_catalog(tmp_path)
    assert before is not None
    assert compare_discoveries(before.discovery, live) == News()


def test_the_headers_of_the_newest_kernel_are_fetched_and_are_packages(live, tmp_path):
    kernel = live.kernels[-1]
    store = PackageStore(tmp_path / "packages", Fetcher(tmp_path / "apt", configured_archives()))
    for package, path in zip(kernel.headers, store.fetch_all(kernel.headers), strict=True):
        shown = run(["dpkg-deb", "--showformat=${Package} ${Version}", "--show", path], timeout=60).text
        assert shown == str(package)
