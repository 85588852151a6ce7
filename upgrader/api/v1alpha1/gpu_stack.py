"""GpuStack: what runs on the nodes of one pool."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.fields import (
    Conditions,
    ImageReference,
    KubeletVersion,
    LabelKey,
    Resource,
    Text,
    VersionText,
    described,
)
from upgrader.api.kubernetes import ObjectMeta


class DriverSpec(Resource, frozen=True, kw_only=True):
    vendor: Annotated[
        Literal["sim"], described("Whose driver. Only `sim` (no kernel module, simulated devices) works today.")
    ]
    version: Annotated[VersionText, described("Driver version that every node of the pool should run.")]


class DevicePluginSpec(Resource, frozen=True, kw_only=True):
    image: Annotated[ImageReference, described("Device plugin image, by tag or digest.")]
    resource_name: Annotated[Text, described("Extended resource that the plugin offers.")] = "nvidia.com/gpu"


class KubeletSpec(Resource, frozen=True, kw_only=True):
    manage: Annotated[bool, described("Whether the kubelet is swapped in the visit. Off unless asked for.")] = False
    version: Annotated[KubeletVersion | None, described("Kubelet version, as 1.35.4.")] = None
    artifact: Annotated[
        ImageReference | None, described("Image that carries the kubelet binary, see docs/node-contract.md.")
    ] = None
    binary: Annotated[
        str, Meta(description="Path of the kubelet on the node.", pattern=r"^/[A-Za-z0-9._/-]+$", max_length=253)
    ] = "/usr/bin/kubelet"


class GangRule(Resource, frozen=True, kw_only=True):
    """Pods of one namespace that belong together although nothing else says so."""

    label: Annotated[LabelKey | None, described("Label by whose value pods belong together.")] = None
    regex: Annotated[
        Text | None,
        described(
            "Expression that must match a pod's whole name; pods whose first group is the same belong together, "
            "without a group all that match."
        ),
    ] = None


class GpuStackSpec(Resource, frozen=True, kw_only=True):
    """What runs on the nodes of one pool. How and when it gets there is a plan's."""

    node_selector: Annotated[dict[str, str], Meta(description="Nodes of this pool, by label.", min_length=1)]
    driver: Annotated[DriverSpec, described("Driver of the pool.")]
    device_plugin: Annotated[DevicePluginSpec, described("Device plugin of the pool.")]
    kubelet: Annotated[KubeletSpec, described("Kubelet of the pool.")] = KubeletSpec()
    node_features: Annotated[
        Literal["Auto", "External"],
        described(
            "Who puts node-feature-discovery's labels on the nodes of the pool. `External`: whoever does, or nobody; "
            "we do not touch them. `Auto`: we do, wherever node-feature-discovery does not run."
        ),
    ] = "External"
    history_limit: Annotated[
        int,
        Meta(
            description="Ended UpgradePlans of the stack that are kept, with the revisions that they rolled out.",
            ge=1,
            le=1000,
        ),
    ] = 10
    gangs: Annotated[
        list[GangRule],
        Meta(description="Who belongs together, before all that is known by itself; first hit wins.", max_length=16),
    ] = []


class DriftCount(Resource, frozen=True, kw_only=True):
    reason: Annotated[str, described("Why these nodes differ from the stack.")]
    nodes: Annotated[int, described("How many nodes differ for this reason.")]
    names: Annotated[list[str], described("The first ten of them.")] = []


class GpuStackStatus(Resource, frozen=True, kw_only=True):
    """How far the pool is from its stack."""

    observed_generation: Annotated[int | None, described("Generation of the spec that this status speaks of.")] = None
    current_revision: Annotated[str | None, described("Revision that all nodes had last.")] = None
    update_revision: Annotated[str | None, described("Revision of the present spec.")] = None
    blocked_revision: Annotated[
        str | None, described("The update revision, where a plan went back from it: correct the spec first.")
    ] = None
    active_plan: Annotated[str | None, described("The one running plan of this stack.")] = None
    nodes: Annotated[int, described("Nodes that the selector finds.")] = 0
    ready: Annotated[int, described("Nodes on the update revision, in service.")] = 0
    drifted: Annotated[int, described("Nodes with at least one reason for drift.")] = 0
    drift: Annotated[list[DriftCount], described("Drift by reason.")] = []
    conditions: Annotated[Conditions, described("Valid, Drifted, Installed; NodeFeatures where we label.")] = []


class GpuStack(Resource, frozen=True, kw_only=True):
    """What: the device stack of one node pool."""

    metadata: ObjectMeta
    spec: GpuStackSpec
    status: GpuStackStatus = GpuStackStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "GpuStack"
