"""Fleets of every sort for the laws of the forecast, and how the same fleet looks under other names."""

from datetime import timedelta

import msgspec
from hypothesis import strategies as st

from tests.support.facts import NEW, OLD, fresh_node, gang, image, member, node, snapshot
from upgrader.core.forecast.canaries import MODEL_LABEL
from upgrader.core.model.fleet import Gang, NodeFacts, Snapshot
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget, Window
from upgrader_dev.simulated.cluster.ports import START

NEXT_KERNEL, LOST_KERNEL = "6.1.0-41-amd64", "6.1.0-99-amd64"
IMAGES = (image(OLD), image(NEW), image(NEW, NEXT_KERNEL))


# One flaw at a time, and most things without any: a fleet where all is odd is blocked as a whole and proves nothing.
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
    {"claimed_by": "uid-upgrade"},
    {"maintenance": "c-1"},
]
GANG_FLAWS = [
    {"method": ""},
    {"method": "none"},
    {"method": "", "replicated": True, "owner": None},
    {"method": "", "replicated": True, "owner": None},
    {"owner": None},
    {"owner": None, "bare": True},
    {"veto": "x=true"},
    {"wanted": 9},
]


def sometimes(flaws, one_in):
    return st.sampled_from([{}] * (one_in - 1) * len(flaws) + flaws)


# Made once: in every draw they cost more than the draw.
NODE_CHANGES, GANG_CHANGES = sometimes(NODE_FLAWS, 6), sometimes(GANG_FLAWS, 2)
UNFIT_NODES, UNFIT_GANGS = (
    sometimes([{"ready": False}, {"skip": True}], 8),
    sometimes([{"method": ""}, {"owner": None}], 5),
)
SIZES, MODELS, RACKS = st.sampled_from([8, 8, 4]), st.sampled_from(["H100", "A100"]), st.sampled_from(["r1", "r2", ""])
VERSIONS, SPANS, SHARES = st.sampled_from([OLD, OLD, NEW]), st.sampled_from([1, 2, 2, 4]), st.sampled_from([8, 4, 1])


@st.composite
def some_node(draw, name):
    version = draw(VERSIONS)
    if not draw(st.integers(0, 19)):
        return fresh_node(name)
    return node(name, version, **draw(NODE_CHANGES))


@st.composite
def some_gang(draw, name, places):
    where = draw(st.lists(st.sampled_from(places), min_size=1, max_size=draw(SPANS)))
    gpus = draw(SHARES)
    members = [member(f"{name}-{number}", at, gpus=gpus) for number, at in enumerate(where)]
    if not draw(st.integers(0, 9)):
        members[-1] = msgspec.structs.replace(members[-1], gpus=0)
    if not draw(st.integers(0, 14)):
        members[-1] = msgspec.structs.replace(members[-1], phase="Pending", node="")
    changes = draw(GANG_CHANGES)
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


@st.composite
def paced_worlds(draw):
    """A tidy pool whose jobs declare times and lanes, in racks and of two models, with a strategy that uses it all."""
    nodes, gangs = [], []
    for number in range(draw(st.integers(1, 8))):
        count, size = draw(st.integers(1, 3)), draw(SIZES)
        names = [f"node-{number}-{at}" for at in range(count)]
        labels = {"rack": draw(RACKS), MODEL_LABEL: draw(MODELS)}
        changes = draw(UNFIT_NODES)
        nodes += [node(name, gpus=size, gpus_allocatable=size, labels=labels, **changes) for name in names]
        if draw(st.integers(0, 3)):
            gangs.append(draw(paced_gang(f"gang-{number}", names, size)))
    if draw(st.booleans()) and len(gangs) > 1:  # two gangs on one node
        shared = msgspec.structs.replace(gangs[0].members[0], pod="shared", uid="uid-shared", gpus=1)
        gangs[1] = msgspec.structs.replace(gangs[1], members=(*gangs[1].members, shared), wanted=0)
    return snapshot(nodes, gangs), draw(strategies())


@st.composite
def paced_gang(draw, name, places, size):
    started = START - timedelta(minutes=draw(st.integers(0, 180)))
    members = tuple(member(f"{name}-{at}", at, gpus=size, started_at=started) for at in places)
    ends = draw(st.sampled_from([None, None, 30, 90, 400]))
    return gang(
        name,
        [],
        members=members,
        wanted=len(members),
        min_runtime_seconds=draw(st.sampled_from([0, 0, 3600, 7200])),
        ends_at=None if ends is None else START + timedelta(minutes=ends),
        lane=draw(st.sampled_from(["", "fast", "slow"])),
        timeout_seconds=draw(st.sampled_from([None, 60, 3600])),
        **draw(UNFIT_GANGS),
    )


@st.composite
def strategies(draw):
    windows = (
        Window(start="08:00", end="12:30"),
        Window(days=("Mon", "Wed"), start="22:00", end="03:00", time_zone="Asia/Tokyo"),
    )
    return StrategyFacts(
        max_unavailable=draw(st.sampled_from(["100%", "50%", "34%", 24, 8])),
        topology=draw(st.sampled_from([(), (), (TopologyBudget(key="rack", max_unavailable="60%"),)])),
        min_available_gpus=draw(st.sampled_from([0, 0, 16])),
        canary=draw(st.booleans()),
        soak_seconds=draw(st.sampled_from([0, 1800])),
        not_before=draw(st.sampled_from([None, None, START + timedelta(minutes=10)])),
        completion_until=draw(st.sampled_from([None, START + timedelta(hours=2)])),
        deadline=draw(st.sampled_from([None, None, START + timedelta(hours=3), START])),
        windows=draw(st.sampled_from([(), (), windows])),
        lane_width=draw(st.sampled_from([0, 1, 2])),
        expendable=draw(st.sampled_from([(), ("ml/Job/gang-0",)])),
    )


def renamed(world: Snapshot, random) -> tuple[Snapshot, dict[str, str]]:
    """The same world where nodes have other names, and what each is called now."""
    names = sorted({one.name for one in world.nodes} | {name for one in world.gangs for name in one.nodes})
    fresh = [f"host-{number}" for number in range(len(names))]
    random.shuffle(fresh)
    to = dict(zip(names, fresh, strict=True))
    nodes = tuple(renamed_node(one, to) for one in world.nodes)
    gangs = tuple(renamed_gang(one, to) for one in world.gangs)
    return msgspec.structs.replace(world, nodes=nodes, gangs=gangs), to


def renamed_node(one: NodeFacts, to: dict[str, str]) -> NodeFacts:
    return msgspec.structs.replace(one, name=to[one.name])


def renamed_gang(one: Gang, to: dict[str, str]) -> Gang:
    members = tuple(msgspec.structs.replace(each, node=to.get(each.node, "")) for each in one.members)
    return msgspec.structs.replace(one, members=members)


def shape(made):
    return [
        sorted((len(group.nodes), len(group.gangs), group.gpus, group.added) for group in batch.groups)
        for batch in made.batches
    ]
