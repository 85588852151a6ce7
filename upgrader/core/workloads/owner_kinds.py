"""Kinds of owners that stop and restart a whole gang, as one table: the paths of their switch and their pod templates.

Field names, states and conditions as published by each project; every row is patched on a real API server against its
CRD in tests/cluster. A row has templates only if its project allows a change of affinity while the owner is off: the
webhooks of JobSet and Volcano refuse that, a TrainJob has none, and Kueue would take a changed Job for another one.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from upgrader.core.patches import Path, value_at


class Switch(StrEnum):
    """How an owner is switched off and on."""

    SUSPEND = "suspend"  # a boolean field, true stops all pods
    DEACTIVATE = "deactivate"  # a boolean field, false evicts the whole workload from its queue
    REPLICAS = "replicas"  # a number, 0 stops all pods; the previous one is recorded
    COMMAND = "command"  # another object orders it


class ReadKind(Struct, frozen=True, kw_only=True):
    """A kind whose objects are read to form gangs; `version` is read if the API server serves it."""

    kind: str
    group: str
    version: str
    plural: str
    metadata_only: bool = False  # only its declarations and its owner are read

    @property
    def api_version(self) -> str:
        """As in ownerReferences."""
        return f"{self.group}/{self.version}"


class OwnerKind(ReadKind, frozen=True, kw_only=True):
    """One kind of owner. Paths are keys from the object's root; `*` means every entry of a list or map."""

    switch: Switch
    field: Path  # of the switch; empty if another object orders it
    templates: tuple[Path, ...] = ()  # pod templates that steering changes; none: it cannot be steered
    steered_since: tuple[int, int] = (0, 0)  # Kubernetes version from which those can be changed while it is off
    conditions: frozenset[str] = frozenset()  # status conditions of an owner that has ended
    proof: str = ""  # status condition of an owner that is off; empty: its numbers and pods show it
    numbers: tuple[Path, ...] = ()  # of pods that it still has; all zero when it is off
    state: Path = ()  # of its state in one word, for kinds that have one
    ended: frozenset[str] = frozenset()  # states of an owner that has ended
    off: frozenset[str] = frozenset()  # states of an owner that is off
    admitted: str = ""  # status condition of an owner that its queue admits
    waiting: frozenset[str] = frozenset()  # states of an owner that its queue does not admit yet
    pod_label: str = ""  # on its pods; empty: its controller or its selector gives its pods
    pod_value: Path = ("metadata", "name")  # path of that label's value in the owner

    @property
    def off_value(self) -> bool | int | None:
        """The value of its field when it is off; None if it has no field."""
        return _OFF.get(self.switch)


_OFF: Mapping[Switch, bool | int] = {Switch.SUSPEND: True, Switch.DEACTIVATE: False, Switch.REPLICAS: 0}
_TEMPLATE = ("spec", "template")
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"

OWNERS: tuple[OwnerKind, ...] = (
    OwnerKind(
        kind="Workload",
        group="kueue.x-k8s.io",
        version="v1beta1",
        plural="workloads",
        switch=Switch.DEACTIVATE,
        field=("spec", "active"),
        conditions=frozenset({"Finished"}),
        proof="Evicted",
        admitted="Admitted",
    ),
    OwnerKind(
        kind="TrainJob",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        plural="trainjobs",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        conditions=frozenset({"Complete", "Failed"}),
        proof="Suspended",
        pod_label=_JOBSET_NAME,  # its JobSet has its name
    ),
    OwnerKind(
        kind="JobSet",
        group="jobset.x-k8s.io",
        version="v1alpha2",
        plural="jobsets",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        conditions=frozenset({"Completed", "Failed"}),
        proof="Suspended",
        numbers=(("status", "replicatedJobsStatus", "*", "active"),),
        pod_label=_JOBSET_NAME,
    ),
    OwnerKind(
        kind="Job",
        group="batch",
        version="v1",
        plural="jobs",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        templates=(_TEMPLATE,),
        steered_since=(1, 36),
        conditions=frozenset({"Complete", "Failed"}),
        numbers=(("status", "active"), ("status", "terminating")),
        pod_label="batch.kubernetes.io/controller-uid",
        pod_value=("metadata", "uid"),
    ),
    OwnerKind(
        kind="MPIJob",
        group="kubeflow.org",
        version="v2beta1",
        plural="mpijobs",
        switch=Switch.SUSPEND,
        field=("spec", "runPolicy", "suspend"),
        templates=(("spec", "mpiReplicaSpecs", "*", "template"),),
        conditions=frozenset({"Succeeded", "Failed"}),
        proof="Suspended",
        numbers=(("status", "replicaStatuses", "*", "active"),),
        pod_label="training.kubeflow.org/job-name",
    ),
    OwnerKind(
        kind="RayJob",
        group="ray.io",
        version="v1",
        plural="rayjobs",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        templates=(
            ("spec", "rayClusterSpec", "headGroupSpec", "template"),
            ("spec", "rayClusterSpec", "workerGroupSpecs", "*", "template"),
        ),
        state=("status", "jobDeploymentStatus"),
        ended=frozenset({"Complete", "Failed"}),
        off=frozenset({"Suspended"}),
        pod_label="ray.io/cluster",
        pod_value=("status", "rayClusterName"),
    ),
    OwnerKind(
        kind="Job",
        group="batch.volcano.sh",
        version="v1alpha1",
        plural="jobs",
        switch=Switch.COMMAND,
        field=(),
        state=("status", "state", "phase"),
        ended=frozenset({"Completing", "Completed", "Terminating", "Terminated", "Failed"}),
        off=frozenset({"Aborted"}),
        waiting=frozenset({"Pending"}),
        numbers=(("status", "running"), ("status", "pending"), ("status", "terminating")),
        pod_label="volcano.sh/job-name",
    ),
    OwnerKind(
        kind="StatefulSet",
        group="apps",
        version="v1",
        plural="statefulsets",
        switch=Switch.REPLICAS,
        field=("spec", "replicas"),
        templates=(_TEMPLATE,),
        numbers=(("status", "replicas"),),
    ),
    OwnerKind(
        kind="LeaderWorkerSet",
        group="leaderworkerset.x-k8s.io",
        version="v1",
        plural="leaderworkersets",
        switch=Switch.REPLICAS,
        field=("spec", "replicas"),
        templates=(
            ("spec", "leaderWorkerTemplate", "leaderTemplate"),
            ("spec", "leaderWorkerTemplate", "workerTemplate"),
        ),
        numbers=(("status", "replicas"),),
        pod_label="leaderworkerset.sigs.k8s.io/name",
    ),
)
_ROWS = {(row.group, row.kind): row for row in OWNERS}

BETWEEN: tuple[ReadKind, ...] = (ReadKind(kind="RayCluster", group="ray.io", version="v1", plural="rayclusters"),)
"""Kinds without a switch, between an owner and its pods."""

DECLARING: tuple[ReadKind, ...] = (
    ReadKind(kind="ReplicaSet", group="apps", version="v1", plural="replicasets", metadata_only=True),
    ReadKind(kind="Deployment", group="apps", version="v1", plural="deployments", metadata_only=True),
    ReadKind(kind="DaemonSet", group="apps", version="v1", plural="daemonsets", metadata_only=True),
)
"""Kinds that do not name, stop or count a gang. Their declarations hold for the pods below them."""

BUILT_IN = frozenset({"", "batch", "apps"})
"""Groups that every API server serves, in the versions that are named here."""


def served_version(kind: ReadKind, served: Mapping[tuple[str, str], Sequence[str]], recorded: str = "") -> str:
    """The version in which objects of a kind are read and written; empty if the API server serves none.

    Args:
        kind: its row.
        served: versions by group and plural, the preferred first.
        recorded: the version in which it was read before; a project may stop serving it while its objects stay.
    """
    if kind.group in BUILT_IN:
        return kind.version
    versions = served.get((kind.group, kind.plural), ())
    return next((version for version in (recorded, kind.version, *versions) if version in versions), "")


def owner_kind(kind: str, api_version: str) -> OwnerKind | None:
    """The row of an owner, for any version of its group; None if it has no row."""
    return _ROWS.get((api_version.partition("/")[0], kind))


def pods_of(row: OwnerKind, owner: Mapping[str, Any]) -> str:
    """Label selector (kubectl's syntax) of all pods of an owner, from the whole object; empty if it is unknown."""
    if row.pod_label:
        value = value_at(owner, row.pod_value)
        return f"{row.pod_label}={value}" if value else ""
    labels = value_at(owner, ("spec", "selector", "matchLabels")) or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
