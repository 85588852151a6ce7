"""A forecast made again keeps to the one before it, where nothing is gained by another."""

from tests.support.facts import gang, node, snapshot
from tests.support.forecasts import foresee_by


def test_what_an_earlier_forecast_said_stays_where_nothing_is_gained():
    names = [f"n{number}" for number in range(6)]
    world = snapshot([node(name) for name in names])
    before = foresee_by(world, max_unavailable=16).batches
    swapped = (before[1], before[0], before[2])
    made = foresee_by(world, max_unavailable=16, remainder=swapped)
    assert [set(batch.nodes) for batch in made.batches] == [set(batch.nodes) for batch in swapped]
    assert [batch.number for batch in made.batches] == [1, 2, 3]


def test_what_is_gained_is_taken():
    names = [f"n{number}" for number in range(4)]
    world = snapshot([node(name) for name in names])
    slow = foresee_by(world, max_unavailable=8).batches
    assert len(foresee_by(world, max_unavailable=32, remainder=slow).batches) == 1


def test_what_joined_fills_the_gaps_of_the_earlier_forecast():
    world = snapshot([node("a"), node("b")], [gang("x", "a"), gang("y", "b")])
    before = foresee_by(world, max_unavailable=8).batches
    grown = snapshot([node(name) for name in "abc"], [*world.gangs, gang("z", "c")])
    made = foresee_by(grown, max_unavailable=8, remainder=before)
    assert [batch.nodes for batch in made.batches] == [before[0].nodes, before[1].nodes, ("c",)]
