"""Gangs of a run: their kinds, their checkpoint methods, and the owners of their pods."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from upgrader.api import names
from upgrader.api.resources import JOBS, ResourceKind
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import JOBSETS, STATEFULSETS, make_job, make_jobset, stateful_set
from upgrader_dev.simulated.cluster.placing import trainer_spec
from upgrader_dev.simulated.cluster.responder import Responder
from upgrader_dev.simulated.cluster.rig import Rig
from upgrader_dev.simulated.cluster.trainers import Trainer

JOB, STATEFUL_SET, JOB_SET, QUEUED = "Job", "StatefulSet", "JobSet", "QueuedJob"
OF_JOBS = frozenset({JOB, JOB_SET, QUEUED})
"""Kinds whose pods a Job creates."""
OF_OTHER_KINDS = 0.15
"""Part of the runs with gangs of JobSet or Kueue, or with the checkpoint method `api`."""
METHODS: dict[str, dict[str, str]] = {
    "file": {},
    "api": {},
    "exec": {names.ANNOTATION_COMMAND: json.dumps(["python3", "/app/workload.py"])},
    "http": {names.ANNOTATION_ENDPOINT: ":8080/checkpoint"},
    "signal": {names.ANNOTATION_SIGNAL: "SIGUSR1"},
    "": {},  # declares no method: the controller waits for the job to complete
}
_INSTALLED = {JOB_SET: "JobSet", QUEUED: "Workload"}
"""The custom resource that a gang's kind requires."""

_BODIES: Mapping[str, Callable[..., Object]] = {
    STATEFUL_SET: stateful_set,
    JOB_SET: make_jobset,
    QUEUED: partial(make_job, queue="gpus"),
}


class GangSpec(Struct, frozen=True, kw_only=True):
    """A gang; `answers`: whether its members acknowledge requests."""

    name: str
    kind: str
    members: int
    gpus: int
    method: str
    answers: bool = True
    parks: bool = True
    selector: dict[str, str] = {}
    """Node selector of its pods; empty: any node."""
    min_runtime: str = ""
    """The minimal runtime before a stop that the gang declares."""

    @property
    def pod_owner(self) -> str:
        """Name of the Job or StatefulSet that creates its pods."""
        return f"{self.name}-w-0" if self.kind == JOB_SET else self.name

    @property
    def applied_kind(self) -> ResourceKind[Any]:
        """The kind of the object that users apply."""
        return {STATEFUL_SET: STATEFULSETS, JOB_SET: JOBSETS}.get(self.kind, JOBS)


def vary_owner_kinds(gangs: Sequence[GangSpec], draws: Draws) -> tuple[GangSpec, ...]:
    """The same gangs; in a few runs, some of them with rarer owners or checkpoint methods."""
    if not draws.is_hit(OF_OTHER_KINDS):
        return tuple(gangs)
    return tuple(_vary_gang(gang, draws) for gang in gangs)


def _vary_gang(gang: GangSpec, draws: Draws) -> GangSpec:
    kind = draws.draw_choice([JOB_SET, QUEUED, gang.kind])
    method = "api" if gang.method and draws.is_hit(0.3) else gang.method
    return structs.replace(gang, kind=kind, method=method)


def assign_pools(gangs: Sequence[GangSpec], pools: Sequence[str], draws: Draws) -> tuple[GangSpec, ...]:
    """The same gangs, most of them with a node selector for one of the pools."""
    return tuple(
        structs.replace(gang, selector={"pool": draws.draw_choice(pools)}) if draws.is_hit(0.7) else gang
        for gang in gangs
    )


def add_time_slices(gangs: Sequence[GangSpec], draws: Draws) -> tuple[GangSpec, ...]:
    """The same gangs, some of them with a minimal runtime."""
    return tuple(structs.replace(gang, min_runtime=draws.draw_choice(["", "30s", "10m"])) for gang in gangs)


def are_steerable(gangs: Sequence[GangSpec]) -> bool:
    """Whether the pods of all gangs can be led to upgraded nodes when they are restarted."""
    return not any(gang.kind in _INSTALLED for gang in gangs)


def serve_gangs(rig: Rig, gangs: Sequence[GangSpec], draws: Draws) -> None:
    """Install the custom resources that these gangs require, and a responder for the method `api`."""
    required = {_INSTALLED[gang.kind] for gang in gangs if gang.kind in _INSTALLED}
    rig.cluster.install(*(row for row in OWNERS if row.kind in required))
    if any(gang.method == "api" for gang in gangs):
        interval = draws.draw_choice([1, 1, 5, 20])
        rig.others.append(Responder(rig.cluster, interval=interval).tick)


def put_gang(rig: Rig, gang: GangSpec, tolerations: list[Object] | None = None) -> None:
    """Create a gang's owner, with a trainer for its pods."""
    annotations: Object = dict(METHODS[gang.method])
    if gang.method:
        annotations[names.ANNOTATION_METHOD] = gang.method
    if gang.min_runtime:
        annotations[names.ANNOTATION_MIN_RUNTIME] = gang.min_runtime
    trainer = rig.fleet.trainers.setdefault(gang.pod_owner, Trainer())
    trainer.parks = gang.parks
    if not gang.answers:
        trainer.answers = lambda _pod, _request, _step: None
    spec = trainer_spec(gang.gpus)
    if tolerations:
        spec["tolerations"] = tolerations
    if gang.selector:
        spec["nodeSelector"] = dict(gang.selector)
    make_owner = _BODIES.get(gang.kind, make_job)
    rig.cluster.store.put(
        gang.applied_kind, make_owner(gang.name, members=gang.members, annotations=annotations, spec=spec)
    )
