"""GpuStack.spec.guardRails: manifests that are rendered for a user to apply."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.core.fields import Resource, Text, field_doc

ObjectName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Setting = Annotated[str, Meta(max_length=253, pattern=r"^[^\n]*$")]


class PriorityClassSpec(Resource, frozen=True, kw_only=True):
    name: Annotated[ObjectName, field_doc("Name of the PriorityClass.")]
    value: Annotated[
        int,
        Meta(
            description="Priority of pods of this class. Pods with a higher value are scheduled first.",
            ge=-2147483648,
            le=1000000000,
        ),
    ]
    preemption_policy: Annotated[
        Literal["PreemptLowerPriority", "Never"],
        field_doc("Whether pods of this class may preempt pods with a lower priority. Defaults to `Never`."),
    ] = "Never"
    description: Annotated[
        str, Meta(description="Description that states when to use this PriorityClass.", max_length=253)
    ] = ""


class GpuQuota(Resource, frozen=True, kw_only=True):
    namespace: Annotated[ObjectName, field_doc("Namespace that the quota applies to.")]
    gpus: Annotated[
        int,
        Meta(
            description="Maximum number of GPUs that the pods of the namespace may request in total. GPUs are "
            "counted in units of devicePlugin.resourceName.",
            ge=0,
        ),
    ]
    priority_classes: Annotated[
        list[ObjectName], field_doc("PriorityClasses whose pods are counted. If empty, all pods are counted.")
    ] = []


class TunedSpec(Resource, frozen=True, kw_only=True):
    """Profile for `tuned` on the nodes of the pool, applied by the node tuning operator."""

    namespace: Annotated[
        Text, field_doc("Namespace of the node tuning operator. Defaults to openshift-cluster-node-tuning-operator.")
    ] = "openshift-cluster-node-tuning-operator"
    include: Annotated[
        ObjectName, field_doc("Profile that this profile extends. Defaults to throughput-performance.")
    ] = "throughput-performance"
    priority: Annotated[
        int, Meta(description="Priority of the profile. A lower value takes precedence. Defaults to 20.", ge=0, le=100)
    ] = 20
    sysctl: Annotated[dict[str, Setting], field_doc("Kernel parameters, by the name that `sysctl` uses.")] = {}
    bootloader: Annotated[
        dict[str, Setting], field_doc("Settings of the plugin `bootloader` of `tuned`, by name, for example `cmdline`.")
    ] = {}


class GuardRailsSpec(Resource, frozen=True, kw_only=True):
    """Manifests that `upgrader guard-rails` prints for a user to apply. The controller does not apply or change
    them.
    """

    taint: Annotated[
        bool,
        field_doc(
            "Whether to print the command that taints the nodes of the pool, so that only pods with GPUs "
            "are scheduled there. Defaults to false."
        ),
    ] = False
    priority_classes: Annotated[
        list[PriorityClassSpec], Meta(description="PriorityClasses for jobs with GPUs.", max_length=16)
    ] = []
    quotas: Annotated[list[GpuQuota], Meta(description="Maximum number of GPUs, by namespace.", max_length=256)] = []
    tuned: Annotated[TunedSpec | None, field_doc("Profile for `tuned` on the nodes of the pool.")] = None
