"""The laws of the forecast, on fleets of every sort: each test is one sentence."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import NEW, image, node, target
from tests.support.forecasts import cost
from tests.support.worlds import NEXT_KERNEL, renamed, shape, tidy_worlds, worlds
from upgrader.core.constraints.budget import allowed_gpus, pool_availability
from upgrader.core.constraints.capacity import Capacity, pool_capacity
from upgrader.core.constraints.upgrade_groups import build_groups
from upgrader.core.forecast.forecast import forecast_rollout
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.fleet import NodeFacts, Snapshot
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget
from upgrader_dev.simulated.cluster.ports import START


def foresee(world: Snapshot, budget, known):
    return forecast_rollout(world, target(), StrategyFacts(max_unavailable=budget), now=START, **known)


@examples(300)
@given(worlds())
def test_every_drifted_node_is_in_one_batch_or_blocked_or_installed(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    open_nodes = {one.node for one in find_drift(world, target()) if one.drifted} - known["already"]
    in_batches = [name for batch in made.batches for name in batch.nodes]
    blocked = {name for blocker in made.blockers for name in blocker.nodes}
    assert max(Counter(in_batches).values(), default=1) == 1
    assert not blocked.intersection(in_batches)
    assert not set(made.installs) & (blocked | set(in_batches))
    assert open_nodes == blocked | set(in_batches) | set(made.installs)
    assert made.summary.drifted == len(open_nodes)
    assert (made.summary.nodes, made.summary.blocked, made.summary.installs) == (
        len(in_batches),
        len(blocked),
        len(made.installs),
    )


@given(
    st.lists(st.integers(0, 16), min_size=2, max_size=8).filter(any),
    st.integers(0, 10**9),
    st.integers(0, 99),
    st.lists(st.sampled_from(["", "r1", "r2"]), min_size=9, max_size=9),
    st.integers(0, 40),
)
def test_what_one_node_says_of_its_size_allows_no_more_than_the_largest_other_one_would(
    gpus, said, percent, racks, floor
):
    strategy = StrategyFacts(
        max_unavailable=f"{percent}%",
        min_available_gpus=floor,
        topology=(TopologyBudget(key="rack", max_unavailable=f"{percent}%"),),
    )

    def limits(claim: int) -> Capacity:
        sizes = [*gpus, claim]
        nodes = [
            node(f"n-{place}", gpus=size, gpus_allocatable=size, labels={"rack": rack} if rack else {})
            for place, (size, rack) in enumerate(zip(sizes, racks, strict=False))
        ]
        return pool_capacity(nodes, pool_availability(nodes, strategy.max_unavailable), strategy)

    found, honest = limits(said), limits(max(gpus))
    assert found.pool.allowed <= honest.pool.allowed
    assert found.above_floor <= honest.above_floor
    assert all(found.domains[name].allowed <= one.allowed for name, one in honest.domains.items())


@examples(300)
@given(worlds())
def test_the_budget_is_never_exceeded(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    broken = frozenset(one.node for one in made.drift if any(found.reason == "Kernel" for found in one.findings))
    pool = pool_availability(world.nodes, budget, broken=broken, elsewhere=world.foreign_unavailable_gpus)
    gangs = {one.name: one for one in world.gangs}
    assert pool.allowed <= allowed_gpus(budget, pool.total)
    for batch in made.batches:
        stopped = [gangs[name] for group in batch.groups for name in group.gangs]
        taken = cost(batch.nodes, stopped, pool)
        assert taken.gpus <= batch.gpus <= pool.allowed
        assert taken.added == 0 or pool.taken + taken.added <= pool.allowed


@examples(300)
@given(worlds())
def test_no_gang_is_stopped_twice_and_none_that_may_not_be(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    stopped = [name for batch in made.batches for group in batch.groups for name in group.gangs]
    gangs = {one.name: one for one in world.gangs}
    assert max(Counter(stopped).values(), default=1) == 1
    assert made.interrupted == set(stopped)
    assert made.summary.interruptions == len(stopped)
    for name in stopped:
        one = gangs[name]
        assert one.method in {"file", "api"}
        assert one.complete
        assert one.owner is not None
        assert not one.veto
        assert not one.replicated
        assert name not in known["stopped_gangs"]
        assert name not in world.pdb_blocked
        assert world.steering


@examples(300)
@given(worlds())
def test_only_nodes_that_are_well_and_have_an_image_are_upgraded(case):
    world, budget, known = case
    nodes = {one.name: one for one in world.nodes}
    ready = {(one.version, one.kernel) for one in world.images}
    for batch in foresee(world, budget, known).batches:
        for name in batch.nodes:
            assert (NEW, nodes[name].kernel) in ready
            assert nodes[name].ready
            assert not nodes[name].skip
            assert not nodes[name].taken
            assert nodes[name].driver_key


@examples(300)
@given(worlds())
def test_a_gang_is_never_left_on_mixed_drivers(case):
    # After its stop every node of a gang's GPUs was upgraded in the same group, or was as the target asks before.
    world, budget, known = case
    made = foresee(world, budget, known)
    right = {one.name for one in world.nodes} - {one.node for one in made.drift if one.drifted}
    gangs = {one.name: one for one in world.gangs}
    for batch in made.batches:
        for group in batch.groups:
            for name in group.gangs:
                at = {one.node for one in gangs[name].members if one.gpus and one.node}
                assert at <= right | set(group.nodes)


@examples(300)
@given(worlds())
def test_everything_on_a_upgraded_node_is_stopped_or_evicted(case):
    world, budget, known = case
    for batch in foresee(world, budget, known).batches:
        for group in batch.groups:
            here = {one.name for one in world.gangs if one.nodes.intersection(group.nodes)}
            assert here == {*group.gangs, *group.evicted}
            assert all(one.replicated for one in world.gangs if one.name in group.evicted)


@examples(300)
@given(worlds())
def test_groups_are_disjoint_and_closed_over_gangs(case):
    world, _, _ = case
    upgraded = [one.name for one in world.nodes]
    parts = build_groups(upgraded, world.gangs)
    assert sorted(name for part in parts for name in part.nodes) == sorted(upgraded)
    for one in world.gangs:
        touched = [part for part in parts if one.nodes.intersection(part.nodes)]
        assert one.replicated or len(touched) <= 1
        assert all(one.name in (part.evicted if one.replicated else part.gangs) for part in touched)


@examples(300)
@given(worlds())
def test_a_blocker_always_says_why_in_a_sentence(case):
    world, budget, known = case
    for blocker in foresee(world, budget, known).blockers:
        assert blocker.nodes
        assert blocker.subject
        assert blocker.message.endswith(".")
        assert not blocker.message[0].islower() or blocker.message.startswith(blocker.subject)


@examples(300)
@given(worlds() | tidy_worlds(), st.randoms(use_true_random=False))
def test_the_same_bytes_whatever_the_order(case, random):
    world, budget, known = case
    nodes, gangs, images = list(world.nodes), list(world.gangs), list(world.images)
    for values in (nodes, gangs, images):
        random.shuffle(values)
    other = msgspec.structs.replace(world, nodes=tuple(nodes), gangs=tuple(gangs), images=tuple(images))
    assert msgspec.json.encode(foresee(other, budget, known)) == msgspec.json.encode(foresee(world, budget, known))


@examples(300)
@given(worlds() | tidy_worlds(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_shape(case, random):
    world, budget, known = case
    other, to = renamed(world, random)
    elsewhere = {**known, "already": frozenset(to[name] for name in known["already"])}
    before, after = foresee(world, budget, known), foresee(other, budget, elsewhere)
    assert shape(after) == shape(before)
    assert after.summary == before.summary
    assert Counter(blocker.reason for blocker in after.blockers) == Counter(
        blocker.reason for blocker in before.blockers
    )


@examples(100)
@given(worlds())
def test_going_through_all_batches_comes_to_an_end(case):
    # Each batch's nodes become as the target asks; what is left at the end is blocked, and says so.
    world, budget, known = case
    for _ in range(len(world.nodes) + 1):
        made = foresee(world, budget, known)
        if not made.batches:
            break
        done = set(made.batches[0].nodes)
        world = msgspec.structs.replace(
            world,
            nodes=tuple(node(one.name, NEW, kernel=one.kernel) if one.name in done else one for one in world.nodes),
        )
        world = msgspec.structs.replace(world, nodes=tuple(on_its_kernel(one) for one in world.nodes))
        known = {**known, "stopped_gangs": known["stopped_gangs"] | set(gangs_of(made))}
    assert not made.batches


def on_its_kernel(one: NodeFacts) -> NodeFacts:
    if one.kernel == NEXT_KERNEL and one.revision == target().revision:
        return msgspec.structs.replace(one, driver_key=image(NEW, NEXT_KERNEL).key)
    return one


def gangs_of(made):
    return [name for group in made.batches[0].groups for name in group.gangs]
