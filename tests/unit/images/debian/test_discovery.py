import pytest

from tests.support.apt_repository import Repository
from tests.support.packages import kernel, package
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.images.debian.discovery import News, carry_over, compare_discoveries, discover_kernels
from upgrader.images.debian.errors import MissingPackageError, UntrustedArchiveError
from upgrader.images.debian.names import HostileNameError
from upgrader.images.debian.values import ArchiveDiscovery, IncompleteKernel

PACKAGES = "Package: {name}\nVersion: 1\nArchitecture: amd64\nSize: 1\nSHA256: {sha}\nFilename: {path}\n"


def versions_of(packages):
    return [(one.name, one.version, one.suites) for one in packages]


def test_all_kernels_of_the_frozen_index(found):
    assert [(one.release, one.os, one.flavour, one.compiler) for one in found.kernels] == [
        ("6.1.0-47-amd64", "bookworm", "amd64", "gcc-12"),
        ("6.1.0-47-cloud-amd64", "bookworm", "cloud-amd64", "gcc-12"),
        ("6.1.0-47-rt-amd64", "bookworm", "rt-amd64", "gcc-12"),
        ("6.1.0-50-amd64", "bookworm", "amd64", "gcc-12"),
        ("6.1.0-53-amd64", "bookworm", "amd64", "gcc-12"),
        ("6.1.0-56-amd64", "bookworm", "amd64", "gcc-12"),
        ("6.12.107+deb13-amd64", "trixie", "amd64", "gcc-14"),
        ("6.12.115+deb13-amd64", "trixie", "amd64", "gcc-14"),
        ("6.12.115+deb13.1-amd64", "trixie", "amd64", "gcc-14"),
        ("6.12.94+deb13-amd64", "trixie", "amd64", "gcc-14"),
        ("7.2.12+deb13-amd64", "trixie", "amd64", "gcc-14"),
    ]
    lacking = IncompleteKernel(release="6.1.0-48-amd64", os="bookworm", missing=("linux-headers-6.1.0-48-amd64",))
    assert found.incomplete == (lacking,)
    assert set(found.indices) == {"bookworm", "bookworm-security", "trixie", "trixie-security", "trixie-backports"}


def test_the_four_packages_that_bookworms_modules_are_built_against(found):
    assert versions_of(found.find_kernel("6.1.0-47-rt-amd64").headers) == [
        ("linux-headers-6.1.0-47-rt-amd64", "6.1.170-3", ("bookworm",)),
        ("linux-headers-6.1.0-47-common-rt", "6.1.170-3", ("bookworm",)),
        ("linux-kbuild-6.1", "6.1.176-1", ("bookworm",)),
        ("linux-compiler-gcc-12-x86", "6.1.176-1", ("bookworm",)),
    ]


def test_trixie_names_its_compiler_itself_and_a_package_may_be_in_two_suites(found):
    both = ("trixie", "trixie-security")
    assert versions_of(found.find_kernel("6.12.107+deb13-amd64").packages) == [
        ("linux-headers-6.12.107+deb13-amd64", "6.12.107-1", both),
        ("linux-headers-6.12.107+deb13-common", "6.12.107-1", both),
        ("linux-kbuild-6.12.107+deb13", "6.12.107-1", both),
        ("linux-image-6.12.107+deb13-amd64", "6.12.107-1", both),
    ]
    assert {one.archive for one in found.find_kernel("6.12.107+deb13-amd64").packages} == {"debian"}


def test_newer_kernels_are_in_several_packages(found):
    assert [one.name for one in found.find_kernel("7.2.12+deb13-amd64").image] == [
        "linux-image-7.2.12+deb13-amd64",
        "linux-base-7.2.12+deb13-amd64",
        "linux-binary-7.2.12+deb13-amd64",
        "linux-modules-7.2.12+deb13-amd64",
    ]


def test_a_driver_in_every_version_that_there_is(found):
    assert found.driver_versions("nvidia-kernel-dkms") == ("535.261.03", "535.309.01", "550.163.01")
    assert found.driver_versions("nvidia-open-kernel-dkms") == ("535.261.03", "550.163.01")
    wanted = ("nvidia-kernel-dkms", "libnvidia-ml1")
    chosen = found.driver_source(wanted, "550.163.01", "trixie")
    assert versions_of(chosen) == [(name, "550.163.01-2", ("trixie",)) for name in wanted]
    (backport,) = found.driver_source(("libnvidia-ml1",), "550.163.01-4~bpo13+1", "trixie")
    assert backport.suites == ("trixie-backports",)


def test_a_driver_that_is_not_there_names_those_that_are(found):
    with pytest.raises(MissingPackageError) as missing:
        found.driver_source(("nvidia-open-kernel-dkms",), "535.309.01")
    first = "no archive has nvidia-open-kernel-dkms 535.309.01"
    assert missing.value.failure() == BuildFailure(kind=FailureClass.UNSUPPORTED, first_error=first)
    assert missing.value.details == "available versions: 535.261.03, 550.163.01"


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("6.1.0-48-amd64", "kernel 6.1.0-48-amd64 lacks linux-headers-6.1.0-48-amd64 in its archive"),
        ("6.1.0-99-amd64", "no archive has the kernel 6.1.0-99-amd64"),
    ],
)
def test_a_kernel_that_nothing_can_be_built_for_is_a_cell_without_headers(found, release, says):
    with pytest.raises(MissingPackageError) as missing:
        found.find_kernel(release)
    assert missing.value.failure() == BuildFailure(kind=FailureClass.HEADERS_MISSING, first_error=says)


@pytest.mark.parametrize("release", ["../6.1", "6.1;reboot", "-6.1", "6.1.0-47-amd64 "])
def test_a_hostile_release_is_refused_before_anything_is_looked_up(found, release):
    with pytest.raises(HostileNameError):
        found.find_kernel(release)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "linux-headers-6.1.0-1-amd64", "sha": "0" * 64, "path": "../../etc/passwd"},
        {"name": "linux-headers-6.1.0-1-amd64;x", "sha": "0" * 64, "path": "pool/x.deb"},
        {"name": "linux-headers-6.1.0-1-amd64", "sha": "0", "path": "pool/x.deb"},
    ],
)
def test_hostile_fields_of_a_signed_index_are_refused_too(tmp_path, key, fields):
    repository = Repository(tmp_path / "mirror", key)
    repository.publish("trixie", {"main": PACKAGES.format(**fields)})
    with pytest.raises(HostileNameError):
        discover_kernels(("trixie",), ("main",), source=repository.archives, folder=tmp_path / "apt")


def test_a_package_without_a_digest_is_refused(tmp_path, key):
    repository = Repository(tmp_path / "mirror", key)
    text = PACKAGES.format(name="linux-headers-6.1.0-1-amd64", sha="", path="pool/x.deb").replace("SHA256: \n", "")
    repository.publish("trixie", {"main": text})
    with pytest.raises(
        UntrustedArchiveError, match=r"trixie describes 'linux-headers-6\.1\.0-1-amd64' without 'SHA256'"
    ):
        discover_kernels(("trixie",), ("main",), source=repository.archives, folder=tmp_path / "apt")


OLD, NEW = kernel("6.12.94+deb13-amd64"), kernel("6.12.107+deb13-amd64")


def known(*kernels, packages=()):
    return ArchiveDiscovery(kernels=kernels, packages=packages, indices={"trixie": "0" * 64})


def test_news_are_what_appeared_changed_or_went():
    again = kernel("6.12.94+deb13-amd64", version="2")
    driver = package("nvidia-kernel-dkms")
    assert compare_discoveries(known(OLD), known(OLD, NEW)) == News(appeared=(NEW,))
    assert compare_discoveries(known(OLD), known(again)) == News(changed=(again,))
    assert compare_discoveries(known(OLD, NEW), known(NEW)) == News(gone=(OLD,))
    assert compare_discoveries(known(), known(packages=(driver,))) == News(packages=(driver,))
    assert compare_discoveries(known(OLD, NEW), known(OLD, NEW)) == News()


def test_a_kernel_that_vanished_stays_as_long_as_its_packages_are_held():
    kept = carry_over(known(OLD, NEW), known(NEW), lambda _package: True)
    assert [(one.release, one.in_archive) for one in kept.kernels] == [
        ("6.12.107+deb13-amd64", True),
        ("6.12.94+deb13-amd64", False),
    ]
    assert carry_over(known(OLD, NEW), known(NEW), lambda one: one != OLD.image[0]) == known(NEW)
    assert compare_discoveries(known(OLD, NEW), kept) == News(gone=(OLD,))
    assert carry_over(kept, known(NEW), lambda _package: True) == kept
    assert carry_over(kept, known(NEW, OLD), lambda _package: True).find_kernel(OLD.release).in_archive


def test_another_kbuild_alone_changes_no_kernel():
    newer = kernel("6.12.94+deb13-amd64", kbuild="2")
    assert carry_over(known(OLD), known(newer), lambda _package: True) == known(OLD)
    assert carry_over(known(OLD), known(newer), lambda _package: False) == known(newer)
    again = kernel("6.12.94+deb13-amd64", version="2", kbuild="2")
    assert carry_over(known(OLD), known(again), lambda _package: True) == known(again)


def test_a_kernel_that_lost_its_headers_is_whole_as_long_as_they_are_held():
    lacking = IncompleteKernel(release=OLD.release, os="trixie", missing=("linux-headers-6.12.94+deb13-amd64",))
    now = ArchiveDiscovery(incomplete=(lacking,))
    assert carry_over(known(OLD), now, lambda _package: True).incomplete == ()
    assert carry_over(known(OLD), now, lambda _package: False) == now


def test_a_driver_that_vanished_stays_as_long_as_it_is_held():
    gone, there = package("nvidia-kernel-dkms", "1"), package("nvidia-kernel-dkms", "2")
    before, now = known(packages=(gone, there)), known(packages=(there,))
    assert carry_over(before, now, lambda _package: True) == before
    assert carry_over(before, now, lambda _package: False) == now
