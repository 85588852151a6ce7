"""The simulated cluster: nodes, jobs and a scheduler that fills what is free. It knows nothing of who upgrades it."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.model.fleet import Snapshot
from upgrader.core.workloads.placement import Placement
from upgrader.simulate import faults, stack
from upgrader.simulate.agenda import Agenda
from upgrader.simulate.durations import Chances
from upgrader.simulate.fleets.fleet import Fleet, SimJob, SimNode
from upgrader.simulate.job import HAS_PODS, VOLUME, Job, Life
from upgrader.simulate.ledger import Ledger, Stall
from upgrader.simulate.node import Node, new_node

GRACE = 5
"""Seconds from SIGTERM until a pod is gone."""

REFUSAL = 1
"""Seconds until a job refuses."""


class World:
    """All state of the cluster. `changed` is told the name of each job or node that changed, and what kind it is."""

    def __init__(self, fleet: Fleet, agenda: Agenda, chances: Chances, *, skew: int = 0, refill: int = 0) -> None:
        self.agenda, self.chances, self.ledger = agenda, chances, Ledger()
        self.skew, self.refill = timedelta(seconds=skew), refill
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.changed: list[Callable[[str], None]] = []
        self.images = stack.make_images(node.kernel for node in fleet.nodes)
        self.failing: dict[str, int] = {}
        """Nodes on which the upgrade Job fails, and how many times more."""
        self._stalls: dict[str, Stall] = {}
        self._waiting: list[Job] = []
        self._due = False
        self._made = 0
        for node in fleet.nodes:
            self.join(node)
        for job in fleet.jobs:
            self._enter(job)
        for event in fleet.events:
            agenda.at(event.at, partial(faults.apply_event, self, event))

    @property
    def now(self) -> int:
        """Seconds from the begin."""
        return self.agenda.now

    @property
    def stalled(self) -> bool:
        """Whether a job that was stopped does not train yet."""
        return bool(self._stalls)

    @property
    def waiting(self) -> bool:
        """Whether a job waits for a place."""
        return bool(self._waiting)

    def snapshot(self) -> Snapshot:
        """What the controller reads."""
        begin = self.agenda.begin
        gangs = (job.gang(begin, self.skew) for job in self.jobs.values() if job.life in HAS_PODS)
        return Snapshot(
            cluster="simulated",
            taken_at=self.agenda.time,
            nodes=tuple(self.nodes[name].facts() for name in sorted(self.nodes)),
            gangs=tuple(sorted(gangs, key=lambda gang: gang.name)),
            images=self.images,
            pdb_blocked={job.name: job.pdb for job in self.jobs.values() if job.pdb},
            api_server_version="v1.36.0",
        )

    # ---------------------------------------------------------------------------------------------- nodes

    def join(self, spec: SimNode) -> None:
        """A node on the old revision."""
        self._made += 1
        self.nodes[spec.name] = new_node(spec, f"uid-{self._made}-{spec.name}")
        self.tell(spec.name)

    def leave(self, name: str) -> None:
        """A node is deleted, with the pods on it."""
        node = self.nodes.pop(name)
        for job in list(node.used):
            self.kill(self.jobs[job], lose=True)
        self.ledger.release(name, self.now)
        self.tell(name)

    def tell(self, name: str) -> None:
        """Something changed; a scheduler looks again, and so does whoever listens."""
        for listener in self.changed:
            listener(name)
        if not self._due:
            self._due = True
            self.agenda.at(self.now, self._schedule)

    # ----------------------------------------------------------------------------------------------- jobs

    def _enter(self, spec: SimJob) -> None:
        trained = -spec.start if spec.running else 0
        job = Job(
            spec=spec,
            done=trained,
            work=None if spec.end is None else spec.end - spec.start,
            declared=None if spec.declared_end is None else spec.declared_end - spec.start,
        )
        self.jobs[spec.name] = job
        if not spec.running:
            self.agenda.at(spec.start, lambda: self._queue(job))
            return
        self._take(job, spec.nodes)
        job.pods_at = spec.start
        self._train(job)

    def grow(self, job: Job, place: str) -> None:
        """One more member."""
        node = self.nodes[place]
        node.used[job.spec.name] = node.used.get(job.spec.name, 0) + job.spec.gpus
        job.places = job.homes = (*job.places, place)
        self.touch(job)

    def resume_by_user(self, job: Job) -> None:
        """Its user wants it to run; our record stays where it was."""
        if job.suspended:
            job.suspended = False
            if job.life is Life.AWAY:
                self._queue(job)
            self.touch(job)

    def _queue(self, job: Job) -> None:
        job.life = Life.WAITING
        self._waiting.append(job)
        self.touch(job)

    def touch(self, job: Job) -> None:
        """Something of it changed."""
        job.touch()
        self.tell(job.spec.name)

    def _take(self, job: Job, places: tuple[str, ...]) -> None:
        for place in places:
            self.nodes[place].used[job.spec.name] = self.nodes[place].used.get(job.spec.name, 0) + job.spec.gpus
        job.places = job.homes = places
        job.generation += 1
        job.pods_at = self.now

    def _free(self, job: Job) -> None:
        for place in job.places:
            if place in self.nodes:
                self.nodes[place].used.pop(job.spec.name, None)
        job.places = ()

    def _train(self, job: Job) -> None:
        stall = self._stalls.pop(job.spec.name, None)
        if stall is not None:
            stall.until = self.now
        job.life, job.since = Life.TRAINING, self.now
        job.token += 1
        if job.work is not None:
            token = job.token
            self.agenda.after(max(0, job.work - job.done), lambda: self._finish(job, token))
        self.touch(job)

    def _halt(self, job: Job) -> None:
        """It stops training; what comes next is said by its life."""
        if job.life is Life.TRAINING:
            job.done = job.step(self.now)
            stall = Stall(job=job.spec.name, gpus=job.spec.gpus, homes=job.places, since=self.now)
            self.ledger.stalls.append(stall)
            self._stalls[job.spec.name] = stall
        job.since = self.now
        job.token += 1

    def _finish(self, job: Job, token: int) -> None:
        if job.token == token:
            self.finish(job)

    def finish(self, job: Job) -> None:
        """It ends by itself."""
        self._halt(job)
        stall = self._stalls.pop(job.spec.name, None)
        if stall is not None:
            stall.until = self.now
        self._free(job)
        if job in self._waiting:
            self._waiting.remove(job)
        job.life, job.suspended, job.request, job.answer = Life.OVER, False, 0, None
        self.touch(job)

    def ask(self, job: Job, request: int, park_seconds: int) -> None:
        """All members see the request: as soon as they train they write a checkpoint and park, or refuse."""
        if job.request == request:
            return
        job.request, job.answer, job.parks = request, None, park_seconds
        if job.life is Life.TRAINING:
            self._hear(job)

    def _hear(self, job: Job) -> None:
        request = job.request
        job.asked += 1
        if job.asked <= job.spec.refuses:
            refusal = Answer(pod_uid="", request_id=request, step=0, refused="not now")
            self.agenda.after(REFUSAL, lambda: self._answer(job, request, refusal))
            self.touch(job)
            return
        self._halt(job)
        job.life = Life.HALTED
        said = Answer(pod_uid="", request_id=request, step=job.done, uri=f"{VOLUME}/checkpoint", parked=True)
        seconds = job.slow or self.chances.checkpoint(job.spec, job.asked)
        self.agenda.after(seconds, lambda: self._answer(job, request, said))
        self.agenda.after(seconds + job.parks, lambda: self._unpark(job, request))
        self.touch(job)

    def _answer(self, job: Job, request: int, answer: Answer) -> None:
        if job.request == request and job.life in {Life.HALTED, Life.TRAINING}:
            job.answer = answer
            self.touch(job)

    def _unpark(self, job: Job, request: int) -> None:
        if job.request == request and job.life is Life.HALTED:
            self._train_on(job)

    def _train_on(self, job: Job) -> None:
        job.answer = None
        self._train(job)

    def withdraw(self, job: Job) -> None:
        """The request is taken back; it trains on."""
        job.request, job.answer = 0, None
        if job.life is Life.HALTED:
            self._train(job)
        self.touch(job)

    def stop(self, job: Job, record: str) -> None:
        """Suspended, with our record; its pods end."""
        if job.life not in HAS_PODS:
            job.suspended, job.record = True, record
            self.touch(job)
            return
        self.ledger.interruptions[job.spec.name] += 1
        job.suspended, job.record = True, record
        self._halt(job)
        job.life = Life.ENDING
        self.agenda.after(GRACE, lambda: self._gone(job))
        self.touch(job)

    def _gone(self, job: Job) -> None:
        if job.life is not Life.ENDING:
            return
        self._free(job)
        job.request, job.answer = 0, None
        if job.suspended:
            job.life = Life.AWAY
            self.touch(job)
        else:
            self._queue(job)

    def resume(self, job: Job, placement: Placement) -> None:
        """Our record goes and it may run again."""
        job.suspended, job.record, job.placement = False, "", placement
        if job.life is Life.AWAY:
            self._queue(job)
        else:
            self.touch(job)

    def kill(self, job: Job, *, lose: bool) -> None:
        """A member is evicted or lost: the gang stops, and comes back from the last checkpoint that it made by itself.

        With `lose`, what it did since then is thrown away.
        """
        if job.life not in HAS_PODS or job.life is Life.ENDING:
            return
        if job.life is not Life.STARTING:
            self.ledger.interruptions[job.spec.name] += 1
        self._halt(job)
        if lose:
            lost = job.done % job.spec.period
            job.done -= lost
            self.ledger.thrown_away += lost * job.spec.gpus * len(job.places)
        job.life = Life.ENDING
        self.agenda.after(GRACE, lambda: self._gone(job))
        self.touch(job)

    # ------------------------------------------------------------------------------------------ scheduler

    def _schedule(self) -> None:
        """First come, first served, whole gangs only; those that find no room wait without keeping others waiting."""
        self._due = False
        for job in list(self._waiting):
            places = self._room(job)
            if places is not None:
                self._waiting.remove(job)
                self._place(job, places)
        if self.refill:
            self._fill()

    def _room(self, job: Job) -> tuple[str, ...] | None:
        """Nodes for all its members: those that it had before anything else, then by name."""
        size = max(job.spec.size, len(job.homes))
        own = [name for name in job.homes if name in self.nodes and self._fits(self.nodes[name], job)]
        if len(own) >= size:
            return tuple(own[:size])
        found, had = own, set(own)
        for name in sorted(self.nodes, key=lambda name: (self.nodes[name].reserved, name)):
            if len(found) >= size:
                break
            if name not in had and self._fits(self.nodes[name], job):
                found.append(name)
        return tuple(found) if len(found) >= size else None

    def _fits(self, node: Node, job: Job) -> bool:
        steer = job.placement
        if not node.in_service or node.free < job.spec.gpus or node.revision in steer.left_behind:
            return False
        if node.maintenance and node.maintenance != steer.group:
            return False
        return bool(node.revision) or not steer.settled

    def _place(self, job: Job, places: tuple[str, ...]) -> None:
        self._take(job, places)
        job.life = Life.STARTING
        job.token += 1
        stall = self._stalls.get(job.spec.name)
        if stall is not None:
            stall.places, stall.placed = places, self.now
        token, seconds = job.token, self.chances.restart(job.spec, job.generation)
        self.agenda.after(seconds, lambda: self._started(job, token))
        self.touch(job)

    def _started(self, job: Job, token: int) -> None:
        if job.token == token:
            job.restored += 1
            self._train(job)
            if job.request:
                self._hear(job)

    def _fill(self) -> None:
        """A queue that never runs dry: every free GPU gets a job at once."""
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if node.in_service and not node.maintenance and node.free:
                self._made += 1
                length = self.chances.draw("filler", str(self._made), self.refill, 3 * self.refill)
                spec = SimJob(
                    name=f"filler-{self._made:05}",
                    size=1,
                    gpus=node.free,
                    start=self.now,
                    end=self.now + length,
                    declared_end=self.now + length,
                )
                job = Job(spec=spec, work=length, declared=length)
                self.jobs[spec.name] = job
                self._take(job, (name,))
                self._train(job)
