"""Works: direct and indirect owners of pods as they were read, and values from their specs and statuses, by kind."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.model.fleet import Owner, StoppedOwner
from upgrader.core.patches import value_at, values_at
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.owner_kinds import OwnerKind, owner_kind
from upgrader.core.workloads.suspend_patches import SuspendRecord, is_off

JOB = "batch/Job"
WORKLOAD = "kueue.x-k8s.io/Workload"
JOBSET = "jobset.x-k8s.io/JobSet"
TRAINJOB = "trainer.kubeflow.org/TrainJob"
MPIJOB = "kubeflow.org/MPIJob"
RAYJOB = "ray.io/RayJob"
RAYCLUSTER = "ray.io/RayCluster"
VOLCANO_JOB = "batch.volcano.sh/Job"
STATEFULSET = "apps/StatefulSet"
LEADERWORKERSET = "leaderworkerset.x-k8s.io/LeaderWorkerSet"

OWN_CONTROLLERS = frozenset(
    {
        "kubernetes.io/job-controller",
        "jobset.sigs.k8s.io/jobset-controller",
        "trainer.kubeflow.org/trainjob-controller",
        "kubeflow.org/mpi-operator",
        "kubeflow.org/training-operator",
        "ray.io/kuberay-operator",
    }
)
"""Values of managedBy that name a kind's usual controller."""

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"  # on owners that Kueue suspends and resumes


class Work(Struct, frozen=True, kw_only=True):
    """An owner as it was read; `spec` and `status` as in the API object."""

    owner: Owner
    namespace: str
    controller: Owner | None = None
    owned_by: tuple[str, ...] = ()  # uids of all owner references, controlling or not
    labels: Mapping[str, str] = {}
    declared: CheckpointAnnotations = CheckpointAnnotations()
    stopped_by: str = ""  # plan in the record of a stop
    stop: SuspendRecord | None = None  # that record, if it is readable
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}
    unread: str = ""  # why it cannot be read; then nothing below its metadata is known

    @property
    def sort(self) -> str:
        """Group and kind, for any version: batch/Job is not batch.volcano.sh/Job."""
        return sort_of(self.owner)

    @property
    def body(self) -> dict[str, Any]:
        """Spec and status, in the form of the whole object."""
        return {"spec": self.spec, "status": self.status}

    @property
    def row(self) -> OwnerKind | None:
        """The row of its kind, with its switch; None if it has no row."""
        return owner_kind(self.owner.kind, self.owner.api_version)


def group_of(owner: Owner) -> str:
    """API group of an owner; empty for the core group."""
    group, slash, _ = owner.api_version.partition("/")
    return group if slash else ""


def sort_of(owner: Owner) -> str:
    """Group and kind of an owner."""
    return f"{group_of(owner)}/{owner.kind}"


def describe_owner(owner: Owner) -> str:
    """Kind and name, for messages."""
    return f"{owner.kind} {owner.name}"


def read_count(value: object, default: int = 0) -> int:
    """A count from an API object, bounded from zero to the largest readable number; the default if it is no number."""
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return min(max(0, value), untrusted.LARGEST)


def object_entries(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, or the values of a map, from an API object."""
    values = list(value.values()) if isinstance(value, Mapping) else value
    return [entry for entry in values if isinstance(entry, Mapping)] if isinstance(values, list) else []


def is_condition_true(owner: Mapping[str, Any], condition: str) -> bool:
    """Whether a status condition of an owner, from the whole object, is True."""
    return any(
        isinstance(entry, Mapping) and entry.get("type") == condition and entry.get("status") == "True"
        for entry in values_at(owner, ("status", "conditions", "*"))
    )


def is_suspended(work: Work) -> bool:
    """Whether it is switched off, by any user or program."""
    return work.row is not None and is_off(work.row, work.body)


def stopped_owners(works: Iterable[Work]) -> tuple[StoppedOwner, ...]:
    """Owners that carry the record of a stop, of kinds that can be stopped."""
    return tuple(
        StoppedOwner(
            owner=work.owner,
            namespace=work.namespace,
            plan=work.stop.plan,
            request=work.stop.request,
            off=is_suspended(work),
        )
        for work in works
        if work.stop is not None and work.row is not None
    )


def is_admitted(work: Work) -> bool:
    """Whether Kueue admits a Workload now."""
    return work.row is not None and is_condition_true(work.body, work.row.admitted) and not is_suspended(work)


def managed_by(work: Work) -> str:
    """Another controller that the spec names; empty: the usual controller."""
    for path in (("managedBy",), ("runPolicy", "managedBy")):
        value = value_at(work.spec, path)
        if isinstance(value, str) and value and value not in OWN_CONTROLLERS:
            return value
    return ""
