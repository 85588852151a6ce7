"""Asking for forecasts, and what tests compare of them."""

from tests.support.facts import target
from upgrader.core.constraints.budget import Cost, node_costs
from upgrader.core.forecast.forecast import BlockedReason, forecast_rollout
from upgrader.core.model.strategy import StrategyFacts
from upgrader_dev.simulated.cluster.ports import START

NEXT_KERNEL = "6.1.0-41-amd64"
H = BlockedReason


def foresee(world, *, budget="100%", wanted=None, now=START, unguaranteed=False, **known):
    strategy = StrategyFacts(max_unavailable=budget, placement_unguaranteed=unguaranteed)
    return forecast_rollout(world, wanted or target(), strategy, now=now, **known)


def foresee_by(world, /, *, now=START, wanted=None, remainder=(), durations=None, **strategy):
    """With a strategy said in full; all may be taken at once unless it says otherwise."""
    facts = StrategyFacts(**{"max_unavailable": "100%", **strategy})
    return forecast_rollout(world, wanted or target(), facts, now=now, remainder=remainder, durations=durations)


def cost(upgraded, stopped, pool):
    """What upgrading these nodes and stopping these gangs takes of a pool in all."""
    by_node = node_costs(upgraded, stopped, pool).values()
    return Cost(gpus=sum(one.gpus for one in by_node), added=sum(one.added for one in by_node))


def shape(made):
    return [[(group.nodes, group.gangs) for group in batch.groups] for batch in made.batches]


def blockers(made):
    return {(blocker.subject, blocker.reason): blocker.nodes for blocker in made.blockers}
