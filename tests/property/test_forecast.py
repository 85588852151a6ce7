"""The laws of the forecast, on fleets of every sort: each test is one sentence."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.facts import NEW, OLD, fresh_node, gang, image, member, node, snapshot, target
from tests.support.world import START
from upgrader.core.budget import allowed_gpus, availability, cost
from upgrader.core.closures import closures
from upgrader.core.drift import drift
from upgrader.core.fleet import Gang, NodeFacts, Snapshot
from upgrader.core.forecast import forecast
from upgrader.core.strategy import StrategyFacts

NEXT_KERNEL, LOST_KERNEL = "6.1.0-41-amd64", "6.1.0-99-amd64"
IMAGES = (image(OLD), image(NEW), image(NEW, NEXT_KERNEL))


# One flaw at a time, and most things without any: a fleet where all is odd is held as a whole and proves nothing.
NODE_FLAWS = [
    {"gpus": 4, "gpus_allocatable": 4},
    {"gpus": 0, "gpus_allocatable": 0},
    {"gpus_allocatable": 7},
    {"ready": False},
    {"unschedulable": True},
    {"skip": True},
    {"kernel": NEXT_KERNEL},
    {"kernel": LOST_KERNEL},
    {"plugin_key": "0000"},
    {"visit": "uid-visit"},
    {"maintenance": "c-1"},
]
GANG_FLAWS = [
    {"method": ""},
    {"method": "none"},
    {"method": "", "replicated": True, "owner": None},
    {"method": "", "replicated": True, "owner": None},
    {"owner": None},
    {"veto": "x=true"},
    {"wanted": 9},
]


def sometimes(flaws, one_in):
    return st.sampled_from([{}] * (one_in - 1) * len(flaws) + flaws)


@st.composite
def some_node(draw, name):
    version = draw(st.sampled_from([OLD, OLD, NEW]))
    if not draw(st.integers(0, 19)):
        return fresh_node(name)
    return node(name, version, **draw(sometimes(NODE_FLAWS, 6)))


@st.composite
def some_gang(draw, name, places):
    where = draw(st.lists(st.sampled_from(places), min_size=1, max_size=draw(st.sampled_from([1, 2, 2, 4]))))
    gpus = draw(st.sampled_from([8, 4, 1]))
    members = [member(f"{name}-{number}", at, gpus=gpus) for number, at in enumerate(where)]
    if not draw(st.integers(0, 9)):
        members[-1] = msgspec.structs.replace(members[-1], gpus=0)
    if not draw(st.integers(0, 14)):
        members[-1] = msgspec.structs.replace(members[-1], phase="Pending", node="")
    changes = draw(sometimes(GANG_FLAWS, 2))
    return gang(name, [], **{"members": tuple(members), "wanted": len(members), **changes})


def some_of(draw, names, one_in):
    """Each name once in so many times."""
    return frozenset(name for name in names if not draw(st.integers(0, one_in - 1)))


@st.composite
def worlds(draw):
    """A pool of nodes, gangs on them (a few reach outside), and what a plan already did."""
    names = [f"node-{number}" for number in range(draw(st.integers(1, 12)))]
    nodes = [draw(some_node(name)) for name in names]
    places = [*names, *["outside"] * (draw(st.integers(0, 2)) == 0)]
    gangs = [draw(some_gang(f"gang-{number}", places)) for number in range(draw(st.integers(0, 5)))]
    called = [one.name for one in gangs]
    world = snapshot(
        nodes,
        gangs,
        images=IMAGES,
        pdb_blocked=dict.fromkeys(some_of(draw, called, 10), "keep"),
        steering=bool(draw(st.integers(0, 9))),
        foreign_unavailable_gpus=draw(st.sampled_from([0, 0, 0, 4])),
    )
    known = {"already": some_of(draw, names, 10), "stopped_gangs": some_of(draw, called, 10)}
    budget = draw(st.sampled_from(["100%", "100%", "50%", "25%", "10%", 0, 1, 8, 16, 40, 1000]))
    return world, budget, known


@st.composite
def tidy_worlds(draw):
    """A pool without flaws: all that matters is the size of its gangs, each on nodes of its own."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([8, 4, 2])), min_size=2, max_size=8))
    nodes, gangs = [], []
    for number, (count, gpus) in enumerate(sizes):
        names = [f"node-{number}-{at}" for at in range(count)]
        nodes += [node(name, gpus=gpus, gpus_allocatable=gpus) for name in names]
        if draw(st.integers(0, 3)):
            gangs.append(gang(f"gang-{number}", names, gpus=gpus))
    budget = draw(st.sampled_from([32, 40, "50%"]))
    return snapshot(nodes, gangs), budget, {"already": frozenset(), "stopped_gangs": frozenset()}


def foresee(world: Snapshot, budget, known):
    return forecast(world, target(), StrategyFacts(max_unavailable=budget), now=START, **known)


@settings(max_examples=300)
@given(worlds())
def test_every_drifted_node_is_in_one_batch_or_held_or_installed(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    open_nodes = {one.node for one in drift(world, target()) if one.drifted} - known["already"]
    in_batches = [name for batch in made.batches for name in batch.nodes]
    held = {name for hold in made.holds for name in hold.nodes}
    assert max(Counter(in_batches).values(), default=1) == 1
    assert not held.intersection(in_batches)
    assert not set(made.installs) & (held | set(in_batches))
    assert open_nodes == held | set(in_batches) | set(made.installs)
    assert made.summary.drifted == len(open_nodes)
    assert (made.summary.nodes, made.summary.held, made.summary.installs) == (
        len(in_batches),
        len(held),
        len(made.installs),
    )


@settings(max_examples=300)
@given(worlds())
def test_the_budget_is_never_exceeded(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    broken = frozenset(one.node for one in made.drift if any(found.reason == "Kernel" for found in one.findings))
    pool = availability(world.nodes, budget, broken=broken, elsewhere=world.foreign_unavailable_gpus)
    gangs = {one.name: one for one in world.gangs}
    assert pool.allowed == allowed_gpus(budget, pool.total)
    for batch in made.batches:
        stopped = [gangs[name] for closure in batch.closures for name in closure.gangs]
        taken = cost(batch.nodes, stopped, pool)
        assert taken.gpus <= batch.gpus <= pool.allowed
        assert taken.added == 0 or pool.taken + taken.added <= pool.allowed


@settings(max_examples=300)
@given(worlds())
def test_no_gang_is_stopped_twice_and_none_that_may_not_be(case):
    world, budget, known = case
    made = foresee(world, budget, known)
    stopped = [name for batch in made.batches for closure in batch.closures for name in closure.gangs]
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


@settings(max_examples=300)
@given(worlds())
def test_only_nodes_that_are_well_and_have_an_image_are_visited(case):
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


@settings(max_examples=300)
@given(worlds())
def test_a_gang_is_never_left_on_mixed_drivers(case):
    # After its stop every node of a gang's GPUs was visited in the same closure, or was as the target asks before.
    world, budget, known = case
    made = foresee(world, budget, known)
    right = {one.name for one in world.nodes} - {one.node for one in made.drift if one.drifted}
    gangs = {one.name: one for one in world.gangs}
    for batch in made.batches:
        for closure in batch.closures:
            for name in closure.gangs:
                at = {one.node for one in gangs[name].members if one.gpus and one.node}
                assert at <= right | set(closure.nodes)


@settings(max_examples=300)
@given(worlds())
def test_everything_on_a_visited_node_is_stopped_or_evicted(case):
    world, budget, known = case
    for batch in foresee(world, budget, known).batches:
        for closure in batch.closures:
            here = {one.name for one in world.gangs if one.nodes.intersection(closure.nodes)}
            assert here == {*closure.gangs, *closure.evicted}
            assert all(one.replicated for one in world.gangs if one.name in closure.evicted)


@settings(max_examples=300)
@given(worlds())
def test_closures_are_disjoint_and_closed_over_gangs(case):
    world, _, _ = case
    visited = [one.name for one in world.nodes]
    parts = closures(visited, world.gangs)
    assert sorted(name for part in parts for name in part.nodes) == sorted(visited)
    for one in world.gangs:
        touched = [part for part in parts if one.nodes.intersection(part.nodes)]
        assert one.replicated or len(touched) <= 1
        assert all(one.name in (part.evicted if one.replicated else part.gangs) for part in touched)


@settings(max_examples=300)
@given(worlds())
def test_a_hold_always_says_why_in_a_sentence(case):
    world, budget, known = case
    for hold in foresee(world, budget, known).holds:
        assert hold.nodes
        assert hold.subject
        assert hold.message.endswith(".")
        assert not hold.message[0].islower() or hold.message.startswith(hold.subject)


@settings(max_examples=300)
@given(worlds() | tidy_worlds(), st.randoms(use_true_random=False))
def test_the_same_bytes_whatever_the_order(case, random):
    world, budget, known = case
    nodes, gangs, images = list(world.nodes), list(world.gangs), list(world.images)
    for values in (nodes, gangs, images):
        random.shuffle(values)
    other = msgspec.structs.replace(world, nodes=tuple(nodes), gangs=tuple(gangs), images=tuple(images))
    assert msgspec.json.encode(foresee(other, budget, known)) == msgspec.json.encode(foresee(world, budget, known))


@settings(max_examples=300)
@given(worlds() | tidy_worlds(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_shape(case, random):
    world, budget, known = case
    names = sorted({one.name for one in world.nodes} | {name for one in world.gangs for name in one.nodes})
    fresh = [f"host-{number}" for number in range(len(names))]
    random.shuffle(fresh)
    to = dict(zip(names, fresh, strict=True))
    renamed = msgspec.structs.replace(
        world,
        nodes=tuple(renamed_node(one, to) for one in world.nodes),
        gangs=tuple(renamed_gang(one, to) for one in world.gangs),
    )
    elsewhere = {**known, "already": frozenset(to[name] for name in known["already"])}
    before, after = foresee(world, budget, known), foresee(renamed, budget, elsewhere)
    assert shape(after) == shape(before)
    assert after.summary == before.summary
    assert Counter(hold.reason for hold in after.holds) == Counter(hold.reason for hold in before.holds)


def renamed_node(one: NodeFacts, to: dict[str, str]) -> NodeFacts:
    return msgspec.structs.replace(one, name=to[one.name])


def renamed_gang(one: Gang, to: dict[str, str]) -> Gang:
    members = tuple(msgspec.structs.replace(each, node=to.get(each.node, "")) for each in one.members)
    return msgspec.structs.replace(one, members=members)


def shape(made):
    return [
        sorted((len(closure.nodes), len(closure.gangs), closure.gpus, closure.added) for closure in batch.closures)
        for batch in made.batches
    ]


@settings(max_examples=100)
@given(worlds())
def test_going_through_all_batches_comes_to_an_end(case):
    # Each batch's nodes become as the target asks; what is left at the end is held, and says so.
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
    return [name for closure in made.batches[0].closures for name in closure.gangs]
