"""Nodes that lack GPUs before any upgrade: held, unless nobody could be hurt, or unless the way leads back."""

import pytest

from tests.support.facts import NEW, OLD, gang, node, snapshot, target
from tests.support.forecasts import H, blockers, foresee

UNWELL = {
    "drained and cordoned": (node("a", gpus_allocatable=7, unschedulable=True), [], {}, set()),
    "cordoned only": (
        node("a", gpus_allocatable=7, unschedulable=True),
        [gang("x", ["a"], gpus=4)],
        {},
        {("a", H.GPUS_MISSING)},
    ),
    "on the revision that is taken back": (
        node("a", gpus_allocatable=7),
        [gang("x", ["a"], gpus=4)],
        {"taken_back": target(OLD).revision},
        set(),
    ),
    "on another revision than is taken back": (
        node("a", gpus_allocatable=7),
        [],
        {"taken_back": "another"},
        {("a", H.GPUS_MISSING)},
    ),
    "without any": (node("a", gpus_allocatable=0), [], {}, set()),
    "without a revision and any rollback": (
        node("a", gpus_allocatable=7, revision=""),
        [],
        {},
        {("a", H.GPUS_MISSING)},
    ),
}


@pytest.mark.parametrize(("at", "gangs", "around", "blocked"), UNWELL.values(), ids=UNWELL.keys())
def test_a_node_that_lacks_gpus_is(at, gangs, around, blocked):
    made = foresee(snapshot([at, node("z", NEW)], gangs, **around))
    assert set(blockers(made)) == blocked
    assert [batch.nodes for batch in made.batches] == ([] if blocked else [("a",)])
