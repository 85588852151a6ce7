"""What is deleted, and above all what is not."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_image.image_garbage import (
    Fate,
    ItemFate,
    StoredImage,
    UsageRecord,
    Uses,
    judge_images,
    record_after_dry_run,
    with_earlier_kernels,
)
from upgrader.core.node_protocol.node_features import label_value

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GRACE = timedelta(days=14)
OLD = StoredImage(kernel="6.1.0-40-amd64", image="registry/open@sha256:" + "a" * 64)
RUNNING = frozenset({"6.1.0-50-amd64"})


def fate_of(uses: Uses, record: dict[str, datetime]) -> ItemFate[StoredImage]:
    (found,) = judge_images([OLD], uses, record, NOW, GRACE)
    return found


def test_what_nobody_needs_is_marked_first_and_deleted_after_the_grace_period():
    uses = Uses(running=RUNNING)
    assert fate_of(uses, {}) == ItemFate(
        item=OLD,
        fate=Fate.UNUSED,
        reason="6.1.0-40-amd64 is not needed; deleted from 2026-12-05 on if it remains so",
        unused_since=NOW,
    )
    marked = NOW - GRACE
    assert fate_of(uses, {OLD.digest: marked + timedelta(seconds=1)}).fate is Fate.UNUSED
    assert fate_of(uses, {OLD.digest: marked}) == ItemFate(
        item=OLD,
        fate=Fate.DELETED,
        reason="no node runs, ran or is to run 6.1.0-40-amd64, since 2026-11-07",
        unused_since=marked,
    )


@pytest.mark.parametrize(
    ("uses", "reason"),
    [
        (Uses(running=frozenset({OLD.kernel})), "nodes run 6.1.0-40-amd64"),
        (Uses(running=RUNNING, pending=frozenset({OLD.kernel})), "nodes are to run 6.1.0-40-amd64"),
        (Uses(running=RUNNING, previous=frozenset({OLD.kernel})), "nodes ran 6.1.0-40-amd64 before"),
        (Uses(running=RUNNING, wanted=frozenset({OLD.kernel})), "the matrix has 6.1.0-40-amd64"),
        (Uses(running=RUNNING, named=frozenset({OLD.digest})), "an object of a cluster names it"),
        (Uses(), "no node was read, so the use of images is not known"),
    ],
)
def test_what_is_kept_and_why(uses, reason):
    found = fate_of(uses, {OLD.digest: NOW - timedelta(days=900)})
    assert (found.fate, found.reason) == (Fate.KEPT, reason)


def test_bytes_that_are_needed_under_another_name_are_not_deleted():
    renamed = StoredImage(kernel="6.1.0-50-amd64", image=OLD.image)
    fates = judge_images([OLD, renamed], Uses(running=RUNNING), {OLD.digest: NOW - timedelta(days=900)}, NOW, GRACE)
    assert [(one.fate, one.reason) for one in fates] == [(Fate.KEPT, "nodes run 6.1.0-50-amd64")] * 2


KERNELS = st.sampled_from(["6.1.0-40-amd64", "6.1.0-50-amd64", "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"])
IMAGES = st.builds(
    StoredImage,
    kernel=KERNELS,
    image=st.sampled_from("0123456789abcdef").map(lambda one: f"registry/open@sha256:{one * 64}"),
)
DIGESTS = IMAGES.map(lambda one: one.digest)
USES = st.builds(
    Uses,
    running=st.frozensets(KERNELS),
    pending=st.frozensets(KERNELS),
    previous=st.frozensets(KERNELS),
    wanted=st.frozensets(KERNELS),
    named=st.frozensets(DIGESTS),
)
MARKS = st.dictionaries(DIGESTS, st.integers(-60, 3).map(lambda days: NOW + timedelta(days=days)))


@given(st.lists(IMAGES, max_size=8), USES, MARKS)
def test_an_image_of_a_running_pending_or_previous_kernel_is_never_deleted(images, uses, record):
    for one in judge_images(images, uses, record, NOW, GRACE):
        if one.fate is Fate.DELETED:
            assert one.item.kernel not in uses.running | uses.pending | uses.previous | uses.wanted
            assert one.item.digest not in uses.named
            assert record[one.item.digest] <= NOW - GRACE
            assert uses.running


@given(st.lists(IMAGES, max_size=8), USES, MARKS, st.sampled_from(["running", "previous"]))
def test_a_kernel_that_only_a_label_names_is_kept_although_a_label_has_it_escaped(images, uses, record, field):
    escaped = Uses(**{field: frozenset(label_value(one.kernel) for one in images)})
    assert {one.fate for one in judge_images(images, uses.union(escaped), record, NOW, GRACE)} <= {Fate.KEPT}


@given(st.lists(IMAGES, max_size=8), USES, USES, MARKS)
def test_seeing_more_never_deletes_more_that_was_kept_for_a_use(images, first, second, record):
    together = first.union(second)
    for alone, both in zip(
        judge_images(images, first, record, NOW, GRACE), judge_images(images, together, record, NOW, GRACE), strict=True
    ):
        if alone.fate is Fate.KEPT and first.running:
            assert both.fate is Fate.KEPT


@given(
    st.lists(IMAGES, max_size=8),
    USES,
    USES,
    MARKS,
    st.dictionaries(KERNELS, st.just(NOW)),
    st.booleans(),
)
def test_a_look_only_ever_saves_images(images, seen, later, unused, before, remembers):
    """Whatever a dry run saw, a sweep after it deletes nothing that it would not have deleted without it."""
    remember, grace = timedelta(days=90 if remembers else 0), timedelta(days=2)
    record = UsageRecord(unused=unused, seen=before)
    fates = judge_images(images, with_earlier_kernels(seen, record, NOW, remember), unused, NOW, grace)
    unused_now = {one.item.digest: one.unused_since for one in fates if one.unused_since is not None}
    after = record_after_dry_run(unused_now, seen, record, NOW)

    def deleted(known: UsageRecord) -> set[str]:
        now = NOW + timedelta(days=1)
        found = judge_images(images, with_earlier_kernels(later, known, now, remember), known.unused, now, grace)
        return {one.item.image for one in found if one.fate is Fate.DELETED}

    assert deleted(after) <= deleted(record)
    if remembers:
        ran = {one.image for one in images if one.kernel in seen.running}
        assert not deleted(after) & ran
