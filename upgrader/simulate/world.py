"""The simulated cluster: nodes, jobs and a scheduler. It does not depend on the upgrader."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.model.fleet import Snapshot
from upgrader.core.workloads.placement import Placement
from upgrader.simulate import faults, stack
from upgrader.simulate.durations import DurationSampler
from upgrader.simulate.event_queue import EventQueue
from upgrader.simulate.fleets.fleet import Fleet, FleetJob, FleetNode
from upgrader.simulate.job import HAS_PODS, VOLUME, JobState, SimulatedJob
from upgrader.simulate.ledger import Ledger, Stall
from upgrader.simulate.node import SimulatedNode, make_node

GRACE = 5
"""Seconds from SIGTERM until a pod is removed."""

REFUSAL = 1
"""Seconds until a job refuses."""


class SimulatedCluster:
    """The state of the cluster. `changed`: listeners that get the name of each changed job or node."""

    def __init__(
        self, fleet: Fleet, queue: EventQueue, sampler: DurationSampler, *, skew: int = 0, refill: int = 0
    ) -> None:
        self.queue, self.sampler, self.ledger = queue, sampler, Ledger()
        self.skew, self.refill = timedelta(seconds=skew), refill
        self.nodes: dict[str, SimulatedNode] = {}
        self.jobs: dict[str, SimulatedJob] = {}
        self.changed: list[Callable[[str], None]] = []
        self.images = stack.make_images(node.kernel for node in fleet.nodes)
        self.failing: dict[str, int] = {}
        """Nodes on which the upgrade Job fails, with the remaining number of failures."""
        self._stalls: dict[str, Stall] = {}
        self._waiting: list[SimulatedJob] = []
        self._is_scheduled = False
        self._count = 0
        for node in fleet.nodes:
            self.add_node(node)
        for job in fleet.jobs:
            self._add_job(job)
        for event in fleet.events:
            queue.schedule_at(event.at, partial(faults.apply_event, self, event))

    @property
    def now(self) -> int:
        """Seconds from the begin."""
        return self.queue.now

    @property
    def stalled(self) -> bool:
        """Whether a stopped job does not train yet."""
        return bool(self._stalls)

    @property
    def waiting(self) -> bool:
        """Whether a job waits for nodes."""
        return bool(self._waiting)

    def snapshot(self) -> Snapshot:
        """The snapshot that the controller reads."""
        begin = self.queue.begin
        gangs = (job.gang_facts(begin, self.skew) for job in self.jobs.values() if job.state in HAS_PODS)
        return Snapshot(
            cluster="simulated",
            taken_at=self.queue.time,
            nodes=tuple(self.nodes[name].node_facts() for name in sorted(self.nodes)),
            gangs=tuple(sorted(gangs, key=lambda gang: gang.name)),
            images=self.images,
            pdb_blocked={job.name: job.pdb for job in self.jobs.values() if job.pdb},
            api_server_version="v1.36.0",
        )

    # ---------------------------------------------------------------------------------------------- nodes

    def add_node(self, spec: FleetNode) -> None:
        """Add a node on the old revision."""
        self._count += 1
        self.nodes[spec.name] = make_node(spec, f"uid-{self._count}-{spec.name}")
        self.notify_change(spec.name)

    def remove_node(self, name: str) -> None:
        """Delete a node, with its pods."""
        node = self.nodes.pop(name)
        for job in list(node.used):
            self.kill_job(self.jobs[job], lose=True)
        self.ledger.end_outage(name, self.now)
        self.notify_change(name)

    def notify_change(self, name: str) -> None:
        """Notify the listeners of a change, and schedule the scheduler."""
        for listener in self.changed:
            listener(name)
        if not self._is_scheduled:
            self._is_scheduled = True
            self.queue.schedule_at(self.now, self._schedule)

    # ----------------------------------------------------------------------------------------------- jobs

    def _add_job(self, spec: FleetJob) -> None:
        trained = -spec.start if spec.running else 0
        job = SimulatedJob(
            spec=spec,
            done=trained,
            work=None if spec.end is None else spec.end - spec.start,
            declared=None if spec.declared_end is None else spec.declared_end - spec.start,
        )
        self.jobs[spec.name] = job
        if not spec.running:
            self.queue.schedule_at(spec.start, lambda: self._queue_job(job))
            return
        self._bind_pods(job, spec.nodes)
        job.pods_at = spec.start
        self._start_training(job)

    def add_member(self, job: SimulatedJob, place: str) -> None:
        """Add a member."""
        node = self.nodes[place]
        node.used[job.spec.name] = node.used.get(job.spec.name, 0) + job.spec.gpus
        job.places = job.homes = (*job.places, place)
        self.handle_change(job)

    def resume_by_user(self, job: SimulatedJob) -> None:
        """The user resumes a job; the controller's record stays."""
        if job.suspended:
            job.suspended = False
            if job.state is JobState.AWAY:
                self._queue_job(job)
            self.handle_change(job)

    def _queue_job(self, job: SimulatedJob) -> None:
        job.state = JobState.WAITING
        self._waiting.append(job)
        self.handle_change(job)

    def handle_change(self, job: SimulatedJob) -> None:
        """Handle a change of a job."""
        job.discard_cache()
        self.notify_change(job.spec.name)

    def _bind_pods(self, job: SimulatedJob, places: tuple[str, ...]) -> None:
        for place in places:
            self.nodes[place].used[job.spec.name] = self.nodes[place].used.get(job.spec.name, 0) + job.spec.gpus
        job.places = job.homes = places
        job.generation += 1
        job.pods_at = self.now

    def _release_nodes(self, job: SimulatedJob) -> None:
        for place in job.places:
            if place in self.nodes:
                self.nodes[place].used.pop(job.spec.name, None)
        job.places = ()

    def _start_training(self, job: SimulatedJob) -> None:
        stall = self._stalls.pop(job.spec.name, None)
        if stall is not None:
            stall.until = self.now
        job.state, job.since = JobState.TRAINING, self.now
        job.token += 1
        if job.work is not None:
            token = job.token
            self.queue.schedule_after(max(0, job.work - job.done), lambda: self._finish_if_current(job, token))
        self.handle_change(job)

    def _stop_training(self, job: SimulatedJob) -> None:
        """Stop its training; the caller sets its next state."""
        if job.state is JobState.TRAINING:
            job.done = job.step_at(self.now)
            stall = Stall(job=job.spec.name, gpus=job.spec.gpus, homes=job.places, since=self.now)
            self.ledger.stalls.append(stall)
            self._stalls[job.spec.name] = stall
        job.since = self.now
        job.token += 1

    def _finish_if_current(self, job: SimulatedJob, token: int) -> None:
        if job.token == token:
            self.finish_job(job)

    def finish_job(self, job: SimulatedJob) -> None:
        """Complete a job."""
        self._stop_training(job)
        stall = self._stalls.pop(job.spec.name, None)
        if stall is not None:
            stall.until = self.now
        self._release_nodes(job)
        if job in self._waiting:
            self._waiting.remove(job)
        job.state, job.suspended, job.request, job.answer = JobState.OVER, False, 0, None
        self.handle_change(job)

    def send_request(self, job: SimulatedJob, request: int, park_seconds: int) -> None:
        """Send a request to all members: as soon as they train they write a checkpoint and park, or refuse."""
        if job.request == request:
            return
        job.request, job.answer, job.parks = request, None, park_seconds
        if job.state is JobState.TRAINING:
            self._handle_request(job)

    def _handle_request(self, job: SimulatedJob) -> None:
        request = job.request
        job.request_count += 1
        if job.request_count <= job.spec.refuses:
            refusal = Ack(pod_uid="", request_id=request, step=0, refused="not now")
            self.queue.schedule_after(REFUSAL, lambda: self._set_answer(job, request, refusal))
            self.handle_change(job)
            return
        self._stop_training(job)
        job.state = JobState.HALTED
        acknowledgement = Ack(pod_uid="", request_id=request, step=job.done, uri=f"{VOLUME}/checkpoint", parked=True)
        seconds = job.slow or self.sampler.draw_checkpoint(job.spec, job.request_count)
        self.queue.schedule_after(seconds, lambda: self._set_answer(job, request, acknowledgement))
        self.queue.schedule_after(seconds + job.parks, lambda: self._unpark_job(job, request))
        self.handle_change(job)

    def _set_answer(self, job: SimulatedJob, request: int, answer: Ack) -> None:
        if job.request == request and job.state in {JobState.HALTED, JobState.TRAINING}:
            job.answer = answer
            self.handle_change(job)

    def _unpark_job(self, job: SimulatedJob, request: int) -> None:
        if job.request == request and job.state is JobState.HALTED:
            self._resume_training(job)

    def _resume_training(self, job: SimulatedJob) -> None:
        job.answer = None
        self._start_training(job)

    def withdraw_request(self, job: SimulatedJob) -> None:
        """Withdraw the request; the job continues to train."""
        job.request, job.answer = 0, None
        if job.state is JobState.HALTED:
            self._start_training(job)
        self.handle_change(job)

    def stop_job(self, job: SimulatedJob, record: str) -> None:
        """Suspend a job, with the controller's record; its pods end."""
        if job.state not in HAS_PODS:
            job.suspended, job.record = True, record
            self.handle_change(job)
            return
        self.ledger.interruptions[job.spec.name] += 1
        job.suspended, job.record = True, record
        self._stop_training(job)
        job.state = JobState.ENDING
        self.queue.schedule_after(GRACE, lambda: self._remove_pods(job))
        self.handle_change(job)

    def _remove_pods(self, job: SimulatedJob) -> None:
        if job.state is not JobState.ENDING:
            return
        self._release_nodes(job)
        job.request, job.answer = 0, None
        if job.suspended:
            job.state = JobState.AWAY
            self.handle_change(job)
        else:
            self._queue_job(job)

    def resume_job(self, job: SimulatedJob, placement: Placement) -> None:
        """Remove the controller's record, so that the job may run again."""
        job.suspended, job.record, job.placement = False, "", placement
        if job.state is JobState.AWAY:
            self._queue_job(job)
        else:
            self.handle_change(job)

    def kill_job(self, job: SimulatedJob, *, lose: bool) -> None:
        """Evict or lose a member: the gang stops, and resumes from its last periodic checkpoint.

        With `lose`, its work since then is lost.
        """
        if job.state not in HAS_PODS or job.state is JobState.ENDING:
            return
        if job.state is not JobState.STARTING:
            self.ledger.interruptions[job.spec.name] += 1
        self._stop_training(job)
        if lose:
            lost = job.done % job.spec.period
            job.done -= lost
            self.ledger.thrown_away += lost * job.spec.gpus * len(job.places)
        job.state = JobState.ENDING
        self.queue.schedule_after(GRACE, lambda: self._remove_pods(job))
        self.handle_change(job)

    # ------------------------------------------------------------------------------------------ scheduler

    def _schedule(self) -> None:
        """Schedule waiting jobs in order, whole gangs only; a job without room does not block others."""
        self._is_scheduled = False
        for job in list(self._waiting):
            places = self._find_nodes(job)
            if places is not None:
                self._waiting.remove(job)
                self._place_job(job, places)
        if self.refill:
            self._fill_free_nodes()

    def _find_nodes(self, job: SimulatedJob) -> tuple[str, ...] | None:
        """Nodes for all its members: its previous nodes first, then by name."""
        size = max(job.spec.size, len(job.homes))
        own = [name for name in job.homes if name in self.nodes and self._fits_node(self.nodes[name], job)]
        if len(own) >= size:
            return tuple(own[:size])
        chosen, had = own, set(own)
        for name in sorted(self.nodes, key=lambda name: (self.nodes[name].reserved, name)):
            if len(chosen) >= size:
                break
            if name not in had and self._fits_node(self.nodes[name], job):
                chosen.append(name)
        return tuple(chosen) if len(chosen) >= size else None

    def _fits_node(self, node: SimulatedNode, job: SimulatedJob) -> bool:
        placement = job.placement
        if not node.in_service or node.free < job.spec.gpus or node.revision in placement.left_behind:
            return False
        if node.maintenance and node.maintenance != placement.group:
            return False
        return bool(node.revision) or not placement.settled

    def _place_job(self, job: SimulatedJob, places: tuple[str, ...]) -> None:
        self._bind_pods(job, places)
        job.state = JobState.STARTING
        job.token += 1
        stall = self._stalls.get(job.spec.name)
        if stall is not None:
            stall.places, stall.placed = places, self.now
        token, seconds = job.token, self.sampler.draw_restart(job.spec, job.generation)
        self.queue.schedule_after(seconds, lambda: self._finish_start(job, token))
        self.handle_change(job)

    def _finish_start(self, job: SimulatedJob, token: int) -> None:
        if job.token == token:
            job.restored += 1
            self._start_training(job)
            if job.request:
                self._handle_request(job)

    def _fill_free_nodes(self) -> None:
        """Simulate an endless queue: every free GPU gets a job immediately."""
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if node.in_service and not node.maintenance and node.free:
                self._count += 1
                length = self.sampler.draw_seconds("filler", str(self._count), self.refill, 3 * self.refill)
                spec = FleetJob(
                    name=f"filler-{self._count:05}",
                    size=1,
                    gpus=node.free,
                    start=self.now,
                    end=self.now + length,
                    declared_end=self.now + length,
                )
                job = SimulatedJob(spec=spec, work=length, declared=length)
                self.jobs[spec.name] = job
                self._bind_pods(job, (name,))
                self._start_training(job)
