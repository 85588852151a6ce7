"""The laws of pace: budgets of all sorts, canaries, waiting, time slices, windows, the deadline; each a sentence."""

from collections import Counter
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import NEW, node, target
from tests.support.worlds import paced_worlds, renamed, shape
from upgrader.core.constraints.budget import allowed_gpus, pool_availability
from upgrader.core.constraints.windows import Calendar
from upgrader.core.forecast.canaries import node_class
from upgrader.core.forecast.forecast import BatchKind, BlockedReason, forecast_rollout
from upgrader.core.gpu_stack.drift import find_drift
from upgrader_dev.simulated.cluster.ports import START

MANY = examples(120)


def foresee(world, strategy, **known):
    return forecast_rollout(world, target(), strategy, now=START, **known)


def taken(world, batch):
    """GPUs in service that a batch takes, by node."""
    gangs = {one.name: one for one in world.gangs}
    pool = pool_availability(world.nodes, 0)
    out = {name: pool.sizes[name] for name in batch.nodes}
    for group in batch.groups:
        for name in group.gangs:
            for each in gangs[name].members:
                if each.node not in group.nodes:
                    out[each.node] = out.get(each.node, 0) + each.gpus
    return {name: count for name, count in out.items() if name not in pool.unavailable}


@MANY
@given(paced_worlds())
def test_every_drifted_node_is_in_one_batch_or_waited_for_or_blocked_or_installed(case):
    world, strategy = case
    made = foresee(world, strategy)
    batches = [name for batch in made.batches for name in batch.nodes]
    completion = [name for one in made.completions for name in one.nodes]
    blocked = {name for blocker in made.blockers for name in blocker.nodes}
    counts = Counter([*batches, *completion, *blocked, *made.installs])
    assert counts == dict.fromkeys((one.node for one in find_drift(world, target()) if one.drifted), 1)
    assert (made.summary.nodes, made.summary.waiting_for_completion, made.summary.blocked) == (
        len(batches),
        len(completion),
        len(blocked),
    )


@MANY
@given(paced_worlds())
def test_no_budget_is_exceeded_whatever_it_counts(case):
    world, strategy = case
    made = foresee(world, strategy)
    pool = pool_availability(world.nodes, strategy.max_unavailable)
    racks = {}
    for one in world.nodes:
        racks.setdefault(one.labels["rack"], []).append(one.name)
    for batch in made.batches:
        out = taken(world, batch)
        gone = sum(out.values())
        assert gone == 0 or pool.taken + gone <= pool.allowed
        assert gone == 0 or pool.total - pool.taken - gone >= strategy.min_available_gpus
        for names in racks.values() if strategy.topology else ():
            total, down = sum(pool.sizes[name] for name in names), sum(pool.unavailable.get(name, 0) for name in names)
            here = sum(out.get(name, 0) for name in names)
            assert here == 0 or down + here <= allowed_gpus(strategy.topology[0].max_unavailable, total)


@MANY
@given(paced_worlds())
def test_nobody_is_asked_before_the_end_of_its_time_slice(case):
    world, strategy = case
    gangs = {one.name: one for one in world.gangs}
    made = foresee(world, strategy)
    for batch in made.batches:
        for group in batch.groups:
            assert all(batch.starts_at >= (gangs[name].earliest_stop or START) for name in group.gangs)
    for one in made.prediction.interruptions:
        assert one.asked_at >= (gangs[one.gang].earliest_stop or START)


@MANY
@given(paced_worlds())
def test_batches_follow_one_another_in_windows_and_before_the_deadline(case):
    world, strategy = case
    made = foresee(world, strategy)
    calendar = Calendar(strategy.windows, START)
    at = START
    for batch in made.batches:
        soaks = strategy.not_before if batch.kind is not BatchKind.CANARY else None
        assert batch.starts_at >= max(at, soaks or START)
        assert calendar.next_opening(batch.starts_at) == batch.starts_at
        at = batch.starts_at + timedelta(seconds=batch.seconds)
        assert strategy.deadline is None or at <= strategy.deadline
    assert [batch.number for batch in made.batches] == list(range(1, len(made.batches) + 1))
    late = {blocker.reason for blocker in made.blockers} & {BlockedReason.WONT_FIT, BlockedReason.DEADLINE_PASSED}
    assert not late or strategy.deadline is not None


@MANY
@given(paced_worlds(), st.data())
def test_each_class_has_a_canary_of_its_own_that_is_watched_before_its_other_nodes(case, data):
    world, strategy = case
    nodes = {one.name: one for one in world.nodes}
    proven = data.draw(st.sets(st.sampled_from(sorted({node_class(one) for one in world.nodes}))))
    made = foresee(world, msgspec.structs.replace(strategy, proven=tuple(sorted(proven))))
    if any(blocker.reason is BlockedReason.WONT_FIT for blocker in made.blockers):
        return
    watched = dict.fromkeys(proven, strategy.not_before or START)
    for batch in made.batches:
        classes = {node_class(nodes[name]) for name in batch.nodes}
        if batch.kind is BatchKind.CANARY:
            assert strategy.canary
            assert all(any(node_class(nodes[name]) not in watched for name in one.nodes) for one in batch.groups)
            end = batch.starts_at + timedelta(seconds=batch.seconds)
            watched |= dict.fromkeys(classes - watched.keys(), end + timedelta(seconds=strategy.soak_seconds))
        elif strategy.canary:
            assert all(batch.starts_at >= watched[one] for one in classes)


@MANY
@given(paced_worlds())
def test_canaries_come_first_unless_they_wait_for_a_time_slice(case):
    world, strategy = case
    made = foresee(world, strategy)
    gangs = {one.name: one for one in world.gangs}
    kinds = [
        batch.kind
        for batch in made.batches
        if batch.kind is not BatchKind.CANARY
        or not any((gangs[name].earliest_stop or START) > START for one in batch.groups for name in one.gangs)
    ]
    first = [kind for kind in kinds if kind is BatchKind.CANARY]
    assert kinds[: len(first)] == first


@MANY
@given(paced_worlds())
def test_who_is_waited_for_is_never_asked_and_ends_in_time(case):
    world, strategy = case
    made = foresee(world, strategy)
    gangs = {one.name: one for one in world.gangs}
    for one in made.completions:
        assert not made.interrupted.intersection(one.gangs)
        assert all(gangs[name].ends_at <= one.at <= strategy.completion_until for name in one.gangs)
        assert set(one.gangs) == {each.name for each in world.gangs if each.nodes.intersection(one.nodes)}


@MANY
@given(paced_worlds())
def test_who_is_stopped_may_be_stopped(case):
    world, strategy = case
    made = foresee(world, strategy)
    gangs = {one.name: one for one in world.gangs}
    stopped = [name for batch in made.batches for group in batch.groups for name in group.gangs]
    assert max(Counter(stopped).values(), default=1) == 1
    for name in stopped:
        assert name in strategy.expendable or (gangs[name].method == "file" and gangs[name].owner is not None)


@MANY
@given(paced_worlds())
def test_what_is_predicted_is_never_below_the_bound_and_names_every_interruption(case):
    world, strategy = case
    made = foresee(world, strategy)
    said = made.prediction
    assert said.lost_gpu_hours >= said.lower_bound_gpu_hours - 1e-9
    assert sorted(one.gang for one in said.interruptions) == sorted(made.interrupted)
    assert (said.finish_p50 is None) == bool(made.blockers)
    if said.finish_p50 is not None:
        assert START <= said.finish_p50 <= said.finish_p95


@MANY
@given(paced_worlds(), st.randoms(use_true_random=False))
def test_the_same_bytes_whatever_the_order(case, random):
    world, strategy = case
    nodes, gangs = list(world.nodes), list(world.gangs)
    random.shuffle(nodes)
    random.shuffle(gangs)
    other = msgspec.structs.replace(world, nodes=tuple(nodes), gangs=tuple(gangs))
    assert msgspec.json.encode(foresee(other, strategy)) == msgspec.json.encode(foresee(world, strategy))


@MANY
@given(paced_worlds(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_shape(case, random):
    world, strategy = case
    before, after = foresee(world, strategy), foresee(renamed(world, random)[0], strategy)
    assert shape(after) == shape(before)
    assert after.summary == before.summary
    times = [[(batch.kind, batch.starts_at, batch.seconds) for batch in made.batches] for made in (before, after)]
    assert times[0] == times[1]


@MANY
@given(paced_worlds())
def test_made_again_after_a_batch_the_rest_ends_no_later_and_loses_no_more(case):
    world, strategy = case
    before = foresee(world, strategy)
    if not before.batches or before.batches[0].kind is BatchKind.CANARY:
        return
    first, *rest = before.batches
    done = msgspec.structs.replace(
        world,
        nodes=tuple(
            node(one.name, NEW, gpus=one.gpus, gpus_allocatable=one.gpus_allocatable, labels=one.labels)
            if one.name in first.nodes
            else one
            for one in world.nodes
        ),
    )
    now = first.starts_at + timedelta(seconds=first.seconds)
    stopped = frozenset(name for group in first.groups for name in group.gangs)
    made = forecast_rollout(done, target(), strategy, now=now, stopped_gangs=stopped, remainder=rest)
    if made.completions != before.completions or made.blockers != before.blockers:
        return  # with the time that went by, other nodes are to be upgraded now
    assert ends(made, now) <= ends(before, now)
    lost = sum(one.lost_gpu_hours for one in before.prediction.interruptions if one.gang not in stopped)
    assert sum(one.lost_gpu_hours for one in made.prediction.interruptions) <= lost + 0.01


def ends(made, now):
    return max([now, *(batch.starts_at + timedelta(seconds=batch.seconds) for batch in made.batches)])
