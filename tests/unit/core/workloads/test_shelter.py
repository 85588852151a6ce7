"""Where a gang goes on whose request is gone."""

import pytest

from tests.support.observed import facts
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.shelter import Shelter, find_shelter


def node(name: str, revision: str, *, taken: bool = False, gpus: int = 8):
    taint = "group" if taken else ""
    return facts(name=name, revision=revision, maintenance=taint, ready=True, gpus=gpus, gpus_allocatable=gpus)


OLD, NEW, UPGRADED = node("a", "old"), node("b", "new"), node("c", "", taken=True)


@pytest.mark.parametrize(
    ("nodes", "wanted", "late", "expected"),
    [
        ([OLD, NEW], "new", False, Placement(left_behind=("old",), settled=True)),
        ([OLD, UPGRADED], "new", True, Placement(left_behind=("new",), settled=True)),
        ([node("a", "old", gpus=4), NEW], "", False, Placement(left_behind=("old",), settled=True)),
        ([UPGRADED], "new", True, Placement(settled=True)),
        ([], "", True, Placement()),
    ],
)
def test_it_goes_to_nodes_of_one_revision(nodes, wanted, late, expected):
    assert find_shelter(nodes, wanted, steerable=True, late=late) == Shelter(placement=expected)


@pytest.mark.parametrize(
    ("nodes", "wanted", "steerable"),
    [
        ([OLD, UPGRADED], "new", True),  # its own plan gives upgraded nodes back soon
        ([UPGRADED], "", True),
        ([OLD, NEW], "", False),
        ([NEW, UPGRADED], "new", False),
    ],
)
def test_it_waits_while_it_could_meet_two_drivers(nodes, wanted, steerable):
    found = find_shelter(nodes, wanted, steerable=steerable, late=False)
    assert (bool(found.why), found.placement) == (True, None)


@pytest.mark.parametrize(("nodes", "late"), [([OLD, node("b", "old")], False), ([OLD, NEW], True)])
def test_an_owner_that_cannot_be_steered_goes_on_where_all_is_one_or_when_it_is_late(nodes, late):
    assert find_shelter(nodes, "", steerable=False, late=late) == Shelter()
