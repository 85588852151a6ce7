"""Owners that a whole gang is stopped and restarted by, as one table: where the switch is and where pods are shaped.

Field names as published by each project; every row is patched on a real API server against its CRD in tests/cluster.
"""

from enum import StrEnum

from msgspec import Struct


class Switch(StrEnum):
    """How an owner is switched off and on."""

    SUSPEND = "suspend"  # a boolean field, true stops all pods
    DEACTIVATE = "deactivate"  # a boolean field, false evicts the whole workload from its queue
    REPLICAS = "replicas"  # a number, 0 stops all pods; the previous one is recorded
    COMMAND = "command"  # another object says what to do


class OwnerKind(Struct, frozen=True, kw_only=True):
    """One kind of owner. Paths are keys from the object's root; `*` stands for every entry of a list or map."""

    kind: str
    group: str
    version: str
    plural: str
    switch: Switch
    field: tuple[str, ...]  # of the switch; empty where another object says it
    templates: tuple[tuple[str, ...], ...] = ()  # pod templates that steering changes; none: it cannot be steered so
    conditions: frozenset[str] = frozenset()  # status conditions that say: it has ended

    @property
    def api_version(self) -> str:
        """As in ownerReferences."""
        return f"{self.group}/{self.version}"


_TEMPLATE = ("spec", "template")

OWNERS: tuple[OwnerKind, ...] = (
    OwnerKind(
        kind="Workload",
        group="kueue.x-k8s.io",
        version="v1beta1",
        plural="workloads",
        switch=Switch.DEACTIVATE,
        field=("spec", "active"),
        conditions=frozenset({"Finished"}),
    ),
    OwnerKind(
        kind="TrainJob",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        plural="trainjobs",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        conditions=frozenset({"Complete", "Failed"}),
    ),
    OwnerKind(
        kind="JobSet",
        group="jobset.x-k8s.io",
        version="v1alpha2",
        plural="jobsets",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        templates=(("spec", "replicatedJobs", "*", "template", *_TEMPLATE),),
        conditions=frozenset({"Completed", "Failed"}),
    ),
    OwnerKind(
        kind="Job",
        group="batch",
        version="v1",
        plural="jobs",
        switch=Switch.SUSPEND,
        field=("spec", "suspend"),
        templates=(_TEMPLATE,),
        conditions=frozenset({"Complete", "Failed"}),
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
    ),
    OwnerKind(
        kind="Job",
        group="batch.volcano.sh",
        version="v1alpha1",
        plural="jobs",
        switch=Switch.COMMAND,
        field=(),
        templates=(("spec", "tasks", "*", "template"),),
    ),
    OwnerKind(
        kind="StatefulSet",
        group="apps",
        version="v1",
        plural="statefulsets",
        switch=Switch.REPLICAS,
        field=("spec", "replicas"),
        templates=(_TEMPLATE,),
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
    ),
)


def owner_kind(kind: str, api_version: str) -> OwnerKind | None:
    """The row of an owner, whatever the version of its group; None where we know no switch of it."""
    group = api_version.partition("/")[0]
    return next((row for row in OWNERS if row.kind == kind and row.group == group), None)
