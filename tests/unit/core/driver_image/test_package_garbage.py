"""Which packages are deleted, and above all which are not: an old kernel's image can still be built."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_image.image_garbage import Fate, ItemFate, Uses
from upgrader.core.driver_image.package_garbage import KernelPackages, KnownPackages, StoredPackage, judge_packages

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GRACE = timedelta(days=14)
OLD, NEW = "6.1.0-40-amd64", "6.1.0-50-amd64"
DEB = StoredPackage(name="linux-headers-6.1.0-40-amd64 6.1.90-1", sha256="a" * 64, size=9_000_000)
LOST = KernelPackages(release=OLD, in_archive=False, packages=frozenset({DEB.sha256, "b" * 64}))
THERE = KernelPackages(release=NEW, in_archive=True, packages=frozenset({"b" * 64, "c" * 64}))
KNOWN = KnownPackages(kernels=(LOST, THERE))
USES = Uses(running=frozenset({NEW}))


def fate_of(known: KnownPackages, uses: Uses, since: datetime | None) -> ItemFate[StoredPackage]:
    record = {} if since is None else {DEB.sha256: since}
    (found,) = judge_packages([DEB], known, uses, record, NOW, GRACE)
    return found


def test_a_lost_kernels_packages_that_nothing_needs_are_marked_and_deleted_after_the_grace_period() -> None:
    assert fate_of(KNOWN, USES, None) == ItemFate(
        item=DEB,
        fate=Fate.UNUSED,
        reason="no required image is built from it; deleted from 2026-12-05 on if it remains so",
        unused_since=NOW,
    )
    assert fate_of(KNOWN, USES, NOW - GRACE + timedelta(seconds=1)).fate is Fate.UNUSED
    assert fate_of(KNOWN, USES, NOW - GRACE) == ItemFate(
        item=DEB,
        fate=Fate.DELETED,
        reason="no required image is built from it, since 2026-11-07",
        unused_since=NOW - GRACE,
    )


THIS = frozenset({DEB.sha256})


@pytest.mark.parametrize(
    ("known", "uses", "reason"),
    [
        ({}, {"running": frozenset({OLD, NEW})}, f"nodes run {OLD}"),
        ({}, {"pending": frozenset({OLD})}, f"nodes are to run {OLD}"),
        ({}, {"previous": frozenset({OLD})}, f"nodes ran {OLD} before"),
        ({}, {"wanted": frozenset({OLD})}, f"the matrix has {OLD}"),
        ({"shelved": frozenset({OLD})}, {}, f"the store has an image for {OLD}"),
        ({"kernels": (msgspec.structs.replace(LOST, in_archive=True),)}, {}, f"the archive has {OLD}"),
        ({"shipped": THIS}, {}, "an image of the store was built from it"),
        ({"drivers": THIS}, {}, "the catalog has it for a driver"),
        ({"toolchains": THIS}, {}, "a toolchain has it"),
        ({}, {"running": frozenset()}, "no node, or no kernel of an archive, was seen"),
        ({"kernels": ()}, {}, "no node, or no kernel of an archive, was seen"),
    ],
)
def test_what_is_kept_and_why(known: dict[str, object], uses: dict[str, frozenset[str]], reason: str) -> None:
    found = fate_of(
        msgspec.structs.replace(KNOWN, **known),
        msgspec.structs.replace(USES, **uses),
        NOW - timedelta(days=900),
    )
    assert found == ItemFate(item=DEB, fate=Fate.KEPT, reason=reason)


def test_a_package_that_a_kernel_of_the_archive_shares_with_a_lost_one_stays() -> None:
    shared = msgspec.structs.replace(DEB, sha256="b" * 64)
    (found,) = judge_packages([shared], KNOWN, USES, {}, NOW, GRACE)
    assert (found.fate, found.reason) == (Fate.KEPT, f"nodes run {NEW}")


RELEASES = st.sampled_from([OLD, NEW, "6.12.94+deb13-amd64"])
DIGESTS = st.sampled_from([digit * 64 for digit in "0123456789abcdef"])
SOME = st.frozensets(DIGESTS, max_size=4)
KERNELS = st.builds(KernelPackages, release=RELEASES, in_archive=st.booleans(), packages=SOME)
ANY_KNOWN = st.builds(
    KnownPackages,
    kernels=st.lists(KERNELS, max_size=4).map(tuple),
    toolchains=SOME,
    drivers=SOME,
    shipped=SOME,
    shelved=st.frozensets(RELEASES),
)
ANY_USES = st.builds(
    Uses,
    running=st.frozensets(RELEASES),
    pending=st.frozensets(RELEASES),
    previous=st.frozensets(RELEASES),
    wanted=st.frozensets(RELEASES),
)
PACKAGES = st.lists(st.builds(StoredPackage, name=st.just("x"), sha256=DIGESTS, size=st.just(1)), max_size=8)
MARKS = st.dictionaries(DIGESTS, st.integers(-60, 3).map(lambda days: NOW + timedelta(days=days)))


@given(PACKAGES, ANY_KNOWN, ANY_USES, MARKS)
def test_nothing_is_deleted_that_something_wanted_could_be_built_of(
    packages: list[StoredPackage], known: KnownPackages, uses: Uses, record: dict[str, datetime]
) -> None:
    wanted = uses.running | uses.pending | uses.previous | uses.wanted | known.shelved
    for one in judge_packages(packages, known, uses, record, NOW, GRACE):
        if one.fate is not Fate.DELETED:
            continue
        digest = one.item.sha256
        assert digest not in known.toolchains | known.drivers | known.shipped
        for kernel in known.kernels:
            assert digest not in kernel.packages or not (kernel.in_archive or kernel.release in wanted)
        assert record[digest] <= NOW - GRACE
        assert uses.running
        assert known.kernels
