"""Whole walks of a group under everything that can happen to it: it always ends, and always well enough.

Between any two steps of the controller something happens: a pod of the operator ends or fails, a member answers this
way or that, a person meddles, time passes, the controller dies between two writes. Then all goes still, and only time
passes.
"""

from datetime import timedelta

from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.group_actors import OLD, Box, Troupe
from tests.support.group_world import World
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_upgrade.upgrade_state import PodOutcome

POD_RESULTS = ("prepare", "upgrade", "validate")


def node_pod_ends(world, which, name, outcome):
    box = world.boxes[which % len(world.boxes)]
    key = f"{name}{'-back' if box.reverting else ''}"
    if box.pod_results.get(key) is PodOutcome.WAITING:
        box.pod_results[key] = outcome


def node_pod_vanishes(world, which, name):
    """Somebody deletes our pod, or a node's controller does."""
    box = world.boxes[which % len(world.boxes)]
    box.pod_results.pop(f"{name}{'-back' if box.reverting else ''}", None)


def everybody_works(world):
    """The good course: what was begun succeeds, who was asked answers, who is stopped ends, who restarted trains."""
    for box in world.boxes:
        for name in POD_RESULTS:
            node_pod_ends(world, world.boxes.index(box), name, PodOutcome.SUCCEEDED)
        if box.facts is not None and box.facts.driver_key not in {"", "none"}:
            box.driver = 1
        if box.facts is not None and box.facts.operands == "on":
            box.plugin = 1
    for troupe in world.troupes:
        answer(world, world.troupes.index(troupe))
        pods_end(world, world.troupes.index(troupe))
        trains(world, world.troupes.index(troupe))


def answer(world, which, *, step=100, parked=True, uri="/data/c", refused="", stale=0):
    if not world.troupes:
        return
    troupe = world.troupes[which % len(world.troupes)]
    for uid, request in troupe.pods.items():
        said = troupe.answers.get(uid)
        if request and not troupe.suspended and (said is None or said.request_id != troupe.request_id):
            troupe.answers[uid] = Ack(
                pod_uid=uid, request_id=int(request) - stale, step=step, uri=uri, parked=parked, refused=refused
            )


def pods_end(world, which):
    troupe = world.troupes[which % len(world.troupes)] if world.troupes else None
    if troupe is not None and troupe.suspended:
        troupe.pods = {}


def trains(world, which):
    troupe = world.troupes[which % len(world.troupes)] if world.troupes else None
    if troupe is not None and not troupe.suspended:
        troupe.progress = dict.fromkeys(troupe.pods, (troupe.step or 0) + 1)


def replaced(world, which):
    troupe = world.troupes[which % len(world.troupes)] if world.troupes else None
    if troupe is not None and not troupe.suspended:
        troupe.run()


def person(world, which, what):
    if not world.troupes:
        return
    troupe = world.troupes[which % len(world.troupes)]
    match what:
        case "suspends":
            troupe.suspended = True
        case "resumes" if troupe.suspended:
            troupe.suspended, troupe.meddled = False, True
            troupe.run()
        case "deletes":
            troupe.deleted, troupe.pods = True, {}
        case "finishes" if troupe.pods:
            troupe.finished, troupe.pods = True, {}


def node_goes(world, which):
    world.boxes[which % len(world.boxes)].facts = None


def stranger(world, which, there):
    world.boxes[which % len(world.boxes)].stranger = there


def spares(world, there):
    world.spares = there


def aborted(world):
    world.undo = True


def later(world, seconds):
    world.now += timedelta(seconds=seconds)


def dies(world, after):
    world.step(broken_after=after)


WHICH = st.integers(0, 2)
TROUBLE = st.one_of(
    st.tuples(st.just(node_pod_ends), WHICH, st.sampled_from(POD_RESULTS), st.just(PodOutcome.FAILED)),
    st.tuples(st.just(node_pod_ends), WHICH, st.sampled_from(POD_RESULTS), st.just(PodOutcome.SUCCEEDED)),
    st.tuples(st.just(node_pod_vanishes), WHICH, st.sampled_from(POD_RESULTS)),
    st.tuples(st.just(answer), WHICH),
    st.builds(
        lambda which, kind: (answer_kind, which, kind),
        WHICH,
        st.sampled_from(("unparked", "ephemeral", "refused", "stale", "other step")),
    ),
    st.tuples(st.just(pods_end), WHICH),
    st.tuples(st.just(trains), WHICH),
    st.tuples(st.just(replaced), WHICH),
    st.tuples(st.just(person), WHICH, st.sampled_from(("suspends", "resumes", "deletes", "finishes"))),
    st.tuples(st.just(node_goes), WHICH),
    st.tuples(st.just(stranger), WHICH, st.booleans()),
    st.tuples(st.just(spares), st.booleans()),
    st.tuples(st.just(aborted)),
    st.tuples(st.just(later), st.sampled_from((1, 6, 61, 300, 1000, 2050))),
    st.tuples(st.just(dies), st.integers(0, 3)),
)


def answer_kind(world, which, kind):
    said = {
        "unparked": {"parked": False},
        "ephemeral": {"uri": "/tmp/c"},
        "refused": {"refused": "not now"},
        "stale": {"stale": 1},
        "other step": {"step": 101},
    }[kind]
    if kind == "other step" and world.troupes:
        troupe = world.troupes[which % len(world.troupes)]
        for uid, request in list(troupe.pods.items())[:1]:
            if request:
                troupe.answers[uid] = Ack(pod_uid=uid, request_id=int(request), step=101, uri="/data/c", parked=True)
        return
    answer(world, which, **said)


COURSE = st.lists(st.tuples(st.integers(0, 12), TROUBLE), min_size=1, max_size=6)
"""Good steps, then trouble, again and again: a walk that meets nothing but trouble does not come far."""

WORLDS = st.builds(
    lambda fresh, gangs: World(
        [Box(name=f"n{i}", fresh=one) for i, one in enumerate(fresh)], [Troupe(name=f"g{i}") for i in range(gangs)]
    ),
    st.lists(st.sampled_from((False, False, False, True)), min_size=1, max_size=3),
    st.integers(0, 2),
)


def walk(world, course):
    for good, (act, *arguments) in course:
        for _ in range(good):
            everybody_works(world)
            world.step()
            later(world, 3)
        act(world, *arguments)
        world.step()
        later(world, 1)


def let_it_end(world):
    """Nothing more happens but time; every deadline and every way out together take less than a day."""
    for _ in range(24 * 60):
        if world.over:
            return
        world.step()
        later(world, 60)
    raise AssertionError(f"has not ended in a day: {world.boxes} {world.troupes}")


@examples(300)
@given(world=WORLDS, course=COURSE)
def test_whatever_happens_a_group_ends_and_leaves_nothing_stopped_or_marked(world, course):
    walk(world, course)
    let_it_end(world)
    assert world.wrongs == []
    for box in world.boxes:
        event(f"node {box.phase.value} {box.failure}")
        assert box.reverts <= 1
        if box.facts is not None and box.failure != "RevertFailed":
            assert box.facts.claimed_by == "", box
    for troupe in world.troupes:
        event(f"gang {troupe.phase and troupe.phase.value} {troupe.stops}")
        assert troupe.stops <= 1, troupe
        assert troupe.deleted or troupe.stopped_by == "", troupe


@examples(300)
@given(world=WORLDS, course=COURSE)
def test_nodes_of_a_group_end_on_one_revision(world, course):
    walk(world, course)
    let_it_end(world)
    alive = [box for box in world.boxes if box.facts is not None and box.failure != "RevertFailed"]
    assert len({box.phase for box in alive if box.phase is NodePhase.SUCCEEDED or box.reverts}) <= 1, alive
    for box in alive:
        assert box.facts.revision in {"", OLD, "new"}
        if box.phase is not NodePhase.SUCCEEDED and not box.reverts and not box.fresh:
            assert box.facts.driver_key == OLD, "who was released was not touched"


@examples(50)
@given(world=WORLDS)
def test_where_spares_are_free_every_gang_goes_on_before_its_nodes_are_released(world):
    spares(world, True)
    walk(world, [(40, (later, 0))])
    assert world.over
    assert world.wrongs == []
    assert [(one.ahead, one.stops, one.phase.value) for one in world.troupes] == [(True, 1, "Restored")] * len(
        world.troupes
    )


@examples(50)
@given(world=WORLDS)
def test_where_all_goes_well_every_node_succeeds_and_every_gang_is_restored_after_one_stop(world):
    walk(world, [(40, (later, 0))])
    assert world.over
    assert {box.phase for box in world.boxes} == {NodePhase.SUCCEEDED}
    assert [(one.phase.value, one.stops) for one in world.troupes] == [("Restored", 1)] * len(world.troupes)
