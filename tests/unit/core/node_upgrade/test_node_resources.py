"""Which allocatable resources are less than before a reboot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.hostile import TEXTS
from upgrader.core.node_upgrade.node_resources import (
    MOST_RESOURCES,
    SHOWN_RESOURCES,
    describe_lost_resources,
    select_resources,
)

COUNTS = st.dictionaries(st.from_regex(r"example\.com/[a-z]{1,6}", fullmatch=True), st.integers(1, 1000), max_size=8)
NONE = frozenset[str]()


def texts(counts):
    return {name: str(count) for name, count in counts.items()}


@examples(100)
@given(COUNTS, COUNTS, st.integers(0, 50))
def test_the_same_or_more_is_no_loss(before, others, more):
    now = others | {name: count + more for name, count in before.items()}
    assert describe_lost_resources(texts(before), texts(now), NONE) == ""


@examples(100)
@given(COUNTS, st.data())
def test_whatever_is_removed_or_reduced_is_named(before, data):
    lost = sorted(data.draw(st.sets(st.sampled_from(sorted(before))))) if before else []
    now = {name: count for name, count in before.items() if name not in lost}
    reduced = [name for name in lost if data.draw(st.booleans())]
    now |= {name: before[name] - 1 for name in reduced}
    expected = [f"{name}: {before[name]} → {now.get(name, 0)}" for name in lost]
    assert describe_lost_resources(texts(before), now, NONE) == ", ".join(expected)


@pytest.mark.parametrize(
    ("name", "before", "now", "lost"),
    [
        ("cpu", "127500m", "127500m", False),
        ("cpu", "128", "127500m", True),
        ("memory", "2113Gi", "2093Gi", False),
        ("memory", "2113Gi", "2090Gi", True),
        ("ephemeral-storage", "1000", "990", False),
        ("hugepages-2Mi", "4Gi", "4090Mi", True),
        ("example.com/nic", "1k", "1000", False),
        ("example.com/nic", "8", "many", True),
        ("example.com/nic", "8", "-1", True),
    ],
)
def test_quantities(name, before, now, lost):
    assert describe_lost_resources({name: before}, {name: now}, NONE) == (f"{name}: {before} → {now}" if lost else "")


def test_what_the_upgrade_changes_is_not_compared():
    assert describe_lost_resources({"cpu": "8"}, {"cpu": "6"}, frozenset({"cpu"})) == ""


def test_gpus_unreadable_and_surplus_resources_are_not_recorded():
    allocatable = {f"example.com/r{number:03}": 1 for number in range(100)} | {
        "nvidia.com/gpu": "8",
        "nvidia.com/gpu.shared": "8",
        "nvidia.com/mig-1g.5gb": "7",
        "a": "many",
        "n" * 318: "1",
    }
    expected = {f"example.com/r{number:03}": "1" for number in range(MOST_RESOURCES)}
    assert select_resources(allocatable, ("nvidia.com/gpu", "")) == expected


def test_a_sentence_lists_some_and_counts_the_others():
    before = {f"r{number:02}": "1" for number in range(SHOWN_RESOURCES + 3)}
    assert describe_lost_resources(before, {}, NONE).endswith("r09: 1 → 0, and 3 more")


@examples(50)
@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers())))
def test_hostile_resources_are_recorded_only_if_they_can_be_compared(allocatable):
    recorded = select_resources(allocatable, ("nvidia.com/gpu",))
    assert describe_lost_resources(recorded, allocatable, NONE) == ""
