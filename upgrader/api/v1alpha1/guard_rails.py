"""GpuStack.spec.guardRails: what is rendered for a person to apply."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.fields import Resource, Text, described

ObjectName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Setting = Annotated[str, Meta(max_length=253, pattern=r"^[^\n]*$")]


class PriorityClassSpec(Resource, frozen=True, kw_only=True):
    name: Annotated[ObjectName, described("Name of the PriorityClass.")]
    value: Annotated[int, Meta(description="Higher goes first.", ge=-2147483648, le=1000000000)]
    preemption_policy: Annotated[
        Literal["PreemptLowerPriority", "Never"], described("Whether pods of it may push out those of a lower one.")
    ] = "Never"
    description: Annotated[str, Meta(description="For whoever chooses one.", max_length=253)] = ""


class GpuQuota(Resource, frozen=True, kw_only=True):
    namespace: Annotated[ObjectName, described("Namespace whose pods share it.")]
    gpus: Annotated[int, Meta(description="Most GPUs at once, of the stack's resource.", ge=0)]
    priority_classes: Annotated[
        list[ObjectName], described("Count only pods of these PriorityClasses. Left out: all pods.")
    ] = []


class TunedSpec(Resource, frozen=True, kw_only=True):
    """A profile for `tuned` on the nodes of the pool, by the node tuning operator."""

    namespace: Annotated[Text, described("Namespace of the node tuning operator.")] = (
        "openshift-cluster-node-tuning-operator"
    )
    include: Annotated[ObjectName, described("Profile that this one adds to.")] = "throughput-performance"
    priority: Annotated[int, Meta(description="Lower goes first.", ge=0, le=100)] = 20
    sysctl: Annotated[dict[str, Setting], described("Kernel settings, by name.")] = {}
    bootloader: Annotated[dict[str, Setting], described("Settings of the boot loader, by name.")] = {}


class GuardRailsSpec(Resource, frozen=True, kw_only=True):
    """Manifests that `upgrader guard-rails` prints for a person to apply; the controller touches none of them."""

    taint: Annotated[
        bool, described("Name the command that taints the pool, so that only pods with GPUs go there.")
    ] = False
    priority_classes: Annotated[
        list[PriorityClassSpec], Meta(description="PriorityClasses for jobs with GPUs.", max_length=16)
    ] = []
    quotas: Annotated[list[GpuQuota], Meta(description="Most GPUs of a namespace.", max_length=256)] = []
    tuned: Annotated[TunedSpec | None, described("A tuned profile of the pool's nodes.")] = None
