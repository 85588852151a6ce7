"""The laws over whole rollouts: random fleets, random trouble, things of one second in any order."""

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.simulated import HOUR, UPGRADE
from upgrader.core.constraints.budget import allowed_gpus
from upgrader.core.model.strategy import StrategyFacts
from upgrader.simulate import stack
from upgrader.simulate.fleets.fleet import EventKind, Fleet, FleetEvent, FleetJob, FleetNode
from upgrader.simulate.job import JobState
from upgrader.simulate.run import Simulation
from upgrader.simulate.settings import DAY, SimulatedStrategy, SimulationSettings

H = EventKind
LONGEST = 8 * HOUR
"""Beyond the deadlines of all phases of a batch, one after the other, revert included."""

NAMES = tuple(f"n{number}" for number in range(8))
TIMES = st.integers(0, 3 * HOUR)
BUDGETS = st.sampled_from(("25%", "50%", "100%", 8, 24))


@st.composite
def fleets(draw):
    """Up to eight nodes with up to six jobs on them, some in pairs on the same nodes, and up to four troubles."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    free, jobs = list(names), []
    while free and len(jobs) < 6 and draw(st.booleans()):
        at = tuple(free.pop() for _ in range(draw(st.integers(1, min(3, len(free))))))
        parts = draw(st.integers(1, 2))
        jobs += [draw(jobs_at(f"j{len(jobs) + part}", at, 8 // parts)) for part in range(parts)]
    later = [draw(jobs_at(f"l{number}", (), 8)) for number in range(draw(st.integers(0, 2)))]
    subjects = [job.name for job in jobs] or ["nobody"]
    events = draw(st.lists(troubles(names, subjects), max_size=4))
    return Fleet(
        name="random",
        nodes=tuple(FleetNode(name=name, rack=f"r{at % 2}") for at, name in enumerate(names)),
        jobs=(*jobs, *later),
        events=tuple(events),
    )


@st.composite
def jobs_at(draw, name, at, gpus):
    start = -draw(TIMES) if at else draw(TIMES)
    end = draw(st.none() | st.integers(max(0, start) + 1, 5 * HOUR))
    return FleetJob(
        name=name,
        size=len(at) or draw(st.integers(1, 2)),
        nodes=at,
        gpus=gpus,
        start=start,
        end=end,
        declared_end=draw(st.sampled_from((None, end, end))),
        min_runtime=draw(st.sampled_from((0, 0, HOUR, 4 * HOUR))),
        method=draw(st.sampled_from(("file", "file", "file", "none", ""))),
        timeout=draw(st.sampled_from((None, 60, 600))),
        checkpoint=draw(st.integers(1, 900)),
        restart=draw(st.integers(1, 600)),
        refuses=draw(st.sampled_from((0, 0, 1, 3))),
        lane=draw(st.sampled_from(("", "a"))),
    )


@st.composite
def troubles(draw, names, subjects):
    what = draw(st.sampled_from([one for one in H if one is not H.NODE_JOINS]))
    node, subject = draw(st.sampled_from(names)), draw(st.sampled_from(subjects))
    values = {H.NODE_RENAMED: f"{node}-again", H.JOB_GROWS: node, H.SLOW_CHECKPOINT: "1500", H.UPGRADE_FAILS: "2"}
    of_node = what.value.startswith(("Node", "Upgrade"))
    return FleetEvent(at=draw(TIMES), what=what, subject=node if of_node else subject, value=values.get(what, ""))


PACES = st.builds(
    StrategyFacts,
    max_unavailable=BUDGETS,
    canary=st.booleans(),
    soak_seconds=st.sampled_from((0, 600)),
    lane_width=st.sampled_from((0, 1)),
    min_available_gpus=st.sampled_from((0, 8)),
)
SETTINGS = st.builds(
    SimulationSettings,
    rollout=PACES,
    seed=st.integers(0, 5),
    upgrade=st.just(UPGRADE),
    skew=st.sampled_from((0, 3600, -3600)),
    refill=st.sampled_from((0, 0, 2 * HOUR)),
    tolerated_failures=st.sampled_from((0, 5)),
    shuffle=st.just(value=True),
    horizon=st.just(DAY),
)


class Watch:
    """Looks at everything after each thing that happens."""

    def __init__(self, fleet, chosen):
        self.sim = Simulation(fleet, SimulatedStrategy.CONTROLLER, chosen)
        self.controller, self.world = self.sim.controller, self.sim.world
        self.before = self._jobs()
        self.stops, self.started = {}, 0

    def _jobs(self):
        jobs = self.world.jobs.values()
        return {
            job.spec.name: (job.state, job.record, job.answer, job.request, job.pods_at, job.pod_uids()) for job in jobs
        }

    def run(self, *looks):
        while self.sim.step():
            after = self._jobs()
            for look in looks:
                look(after)
            self.before = after

    # ---------------------------------------------------------------------------------- what must always be

    def acknowledged_stops_only(self, after):
        for name, (_, record, *_) in after.items():
            if not record or name not in self.before or self.before[name][1]:
                continue
            state, _, answer, request, pods_at, uids = self.before[name]
            assert state is JobState.HALTED, f"{name} was {state} when it was stopped"
            assert answer is not None
            assert answer.parked
            assert answer.request_id == request
            stopped_by = next(one for one in self.controller.requests if one.name == record)
            assert set(stopped_by.members) == set(uids), "all members that there are were asked"
            assert {one.pod_uid for one in stopped_by.acks} == set(uids)
            self.stops.setdefault(name, []).append(self.sim.queue.now)
            least = self.world.jobs[name].spec.min_runtime
            seen = pods_at + self.sim.settings.skew
            assert not least or self.sim.queue.now >= seen + least, "its time slice is not over"

    def budget_is_kept(self, after):
        del after
        started = len(self.controller.batches)
        if started == self.started:
            return
        self.started = started
        batch = self.controller.batches[-1]
        mine = {node for one in batch.groups for node in one.nodes}
        pool = {name: node.spec.gpus for name, node in self.world.nodes.items()}
        serving = {
            name for name, node in self.world.nodes.items() if node.in_service and (name in mine or not node.claimed_by)
        }
        allowed = allowed_gpus(self.sim.settings.rollout.max_unavailable, sum(pool.values()))
        stopped = {gang for one in batch.groups for gang in one.gangs}
        elsewhere = sum(
            job.spec.gpus
            for job in self.world.jobs.values()
            for place in job.places
            if job.name in stopped and place in serving - mine
        )
        # What somebody else took out of service already costs nothing to upgrade.
        added = sum(pool[name] for name in mine & serving) + elsewhere
        down = sum(pool[name] for name in pool.keys() - serving)
        assert sum(one.gpus for one in batch.groups) <= allowed
        assert not added or added + down <= allowed, f"{added} GPUs beside {down} that are down, {allowed} allowed"

    def the_batch_takes_no_more_than_it_was_priced_at(self, after):
        del after
        batch = self.controller.open_batch
        if batch is None or any(one.what is H.JOB_GROWS for one in self.sim.fleet.events):
            return
        closed = {name for name, node in self.world.nodes.items() if node.claimed_by}
        mine = {node for one in batch.groups for node in one.nodes}
        gone = sum(self.world.nodes[name].spec.gpus for name in closed & mine)
        for job in self.world.jobs.values():
            if job.record and job.state in {JobState.ENDING, JobState.AWAY}:
                gone += sum(job.spec.gpus for home in job.homes if home not in closed and home in self.world.nodes)
        assert gone <= sum(one.gpus for one in batch.groups)

    def only_the_batch_is_touched(self, after):
        del after
        batch = self.controller.open_batch
        mine = {node for one in batch.groups for node in one.nodes} if batch else set()
        failed = {one.node for one in self.controller.upgrades if one.is_over and one.failure}
        blocked = {name for name, node in self.world.nodes.items() if node.claimed_by or node.maintenance}
        assert blocked <= mine | failed

    def restarted_gangs_meet_one_driver(self, after):
        del after
        grown = {one.subject for one in self.sim.fleet.events if one.what is H.JOB_GROWS}
        new = {image.key for image in self.world.images if image.version == stack.NEW}
        for name in self.stops.keys() - grown:
            job = self.world.jobs[name]
            if job.state in {JobState.STARTING, JobState.TRAINING, JobState.HALTED}:
                there = [self.world.nodes[place] for place in job.places]
                assert len({node.driver_key in new for node in there}) == 1

    def open_phases_have_deadlines(self, after):
        del after
        if self.controller.open_batch is None:
            return
        now = self.sim.queue.time
        late = msgspec.UNSET
        for one in (*self.controller.upgrades, *self.controller.requests):
            if not one.is_over and one.deadline is not None and (now - one.deadline).total_seconds() > 120:
                late = one
        # What waits for its siblings counts by their deadlines, and those by their own.
        assert late is msgspec.UNSET or any(
            one.deadline is not None and one.deadline >= now
            for one in (*self.controller.upgrades, *self.controller.requests)
            if not one.is_over and one.group == late.group
        )


@given(fleets(), SETTINGS)
@examples(30)
def test_nobody_is_stopped_without_the_acknowledgement_of_all_nor_before_its_time_slice_nor_twice(fleet, chosen):
    watch = Watch(fleet, chosen)
    watch.run(watch.acknowledged_stops_only, watch.restarted_gangs_meet_one_driver)
    event(f"{sum(map(len, watch.stops.values()))} stops")
    assert all(len(times) == 1 for times in watch.stops.values())


@given(fleets(), SETTINGS)
@examples(30)
def test_the_budget_is_kept_by_every_batch_and_nothing_else_is_touched(fleet, chosen):
    watch = Watch(fleet, chosen)
    watch.run(
        watch.budget_is_kept,
        watch.the_batch_takes_no_more_than_it_was_priced_at,
        watch.only_the_batch_is_touched,
        watch.open_phases_have_deadlines,
    )
    event(f"{len(watch.controller.batches)} batches")


@given(fleets(), SETTINGS)
@examples(30)
def test_everything_ends_and_nothing_stays_stopped_or_marked(fleet, chosen):
    watch = Watch(fleet, msgspec.structs.replace(chosen, refill=0))
    watch.run()
    world, controller = watch.world, watch.controller
    # Who never answers well is asked again and again: the batch that is open at the horizon ends by its deadlines.
    while controller.open_batch is not None and watch.sim.queue.run_next(DAY + LONGEST):
        pass
    event(controller.phase.value)
    kept = {one.node for one in controller.upgrades if one.is_over and one.failure == "RevertFailed"}
    assert controller.open_batch is None
    assert all(one.is_over for one in (*controller.upgrades, *controller.requests))
    assert [
        name for name, node in world.nodes.items() if (node.claimed_by or node.maintenance) and name not in kept
    ] == []
    assert [job.spec.name for job in world.jobs.values() if job.record or job.suspended] == []


@given(fleets(), SETTINGS)
@examples(30)
def test_the_same_seed_gives_the_same_rollout(fleet, chosen):
    first, second = (Simulation(fleet, SimulatedStrategy.CONTROLLER, chosen).run() for _ in range(2))
    assert first == second
