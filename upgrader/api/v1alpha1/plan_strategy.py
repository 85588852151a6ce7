"""UpgradePlan.spec: order and pace of a rollout, and defaults for checkpoints."""

from typing import Annotated

import msgspec
from msgspec import Meta

from upgrader.core.fields import (
    CheckpointMethods,
    Resource,
    Seconds,
    Text,
    field_doc,
    keyed_by,
)
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import TopologyBudget, Window
from upgrader.core.model.validation import ValidationLevel


class Canary(Resource, frozen=True, kw_only=True):
    enabled: Annotated[
        bool,
        field_doc(
            "Whether one idle node of each class (GPU model, kernel, driver) is upgraded before all "
            "others. Defaults to true."
        ),
    ] = True
    soak_seconds: Annotated[
        int,
        Meta(
            description="Time, in seconds, that canaries are watched before the next batch starts. Defaults to 600.",
            ge=0,
            le=604800,
        ),
    ] = 600
    validation: Annotated[
        ValidationLevel | None,
        field_doc("Level of the validation of canaries. If unset, that of the strategy is used."),
    ] = None


class Strategy(Resource, frozen=True, kw_only=True):
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Maximum number of GPUs that may be out of service at the same time, with all GPUs of a "
            "stopped gang counted: a number, or a percentage of the GPUs of the pool, rounded down. "
            "Defaults to 25%.",
            extra_json_schema={"x-kubernetes-int-or-string": True},
        ),
    ] = "25%"
    topology_budgets: Annotated[
        tuple[TopologyBudget, ...],
        Meta(
            description="Topology budgets, which limit the GPUs out of service in each rack or zone. If empty, only "
            "`maxUnavailable` applies.",
            max_length=16,
            extra_json_schema=keyed_by("key"),
        ),
    ] = ()
    min_available_gpus: Annotated[
        int,
        Meta(
            description="Minimum number of GPUs of the pool that stay in service during a batch. Defaults to 0.", ge=0
        ),
    ] = msgspec.field(default=0, name="minAvailableGPUs")
    canary: Annotated[
        Canary,
        field_doc(
            "Canaries. If a canary fails, the action of `onFailure` is taken, regardless of `toleratedFailures`."
        ),
    ] = Canary()
    wait_for_completion_seconds: Annotated[
        int,
        Meta(
            description="Maximum time, in seconds from the start of the plan, to wait for completion of jobs. Nodes "
            "whose jobs all declare an end within this time are upgraded after the jobs have ended, "
            "without a checkpoint request. 0 disables the wait. Defaults to 3600.",
            ge=0,
            le=2592000,
        ),
    ] = 3600
    windows: Annotated[
        tuple[Window, ...],
        Meta(description="Windows in which batches may start. If empty, batches may start at any time.", max_length=16),
    ] = ()
    deadline_seconds: Annotated[
        Annotated[int, Meta(ge=60, le=31536000)] | None,
        field_doc(
            "Deadline of the plan, in seconds from its start. A batch that is expected to end after the "
            "deadline does not start. A batch that is in progress at the deadline is completed; then the "
            "plan fails if nodes remain. If unset, there is no deadline."
        ),
    ] = None
    validation: Annotated[
        ValidationLevel,
        field_doc(
            "Level of the validation of nodes before their release. `Devices`: checks of the driver and its devices, "
            "and the workload of the stack. `AllReduce`: also an all-reduce over all GPUs of a node. `Diagnostics`: "
            "also NVIDIA's diagnostics. Defaults to Devices."
        ),
    ] = ValidationLevel.DEVICES
    on_failure: Annotated[
        OnFailure,
        field_doc(
            "Action to take when more nodes and gangs than `toleratedFailures` have failed. Pause: no "
            "further batch starts. Rollback: the plan is aborted, and another plan rolls its nodes back "
            "to their previous revision. Defaults to Pause."
        ),
    ] = OnFailure.PAUSE


class Lanes(Resource, frozen=True, kw_only=True):
    max_concurrent: Annotated[
        int,
        Meta(
            description="Maximum number of gangs that may write checkpoints to one storage at the same time. 0 means "
            "no limit. Defaults to 0.",
            ge=0,
            le=1000,
        ),
    ] = 0


class CheckpointDefaults(Resource, frozen=True, kw_only=True):
    timeout_seconds: Annotated[
        Seconds,
        field_doc(
            "Maximum duration of one checkpoint, in seconds, for jobs without the annotation "
            "gpu-upgrader.io/checkpoint-timeout. Defaults to 1800."
        ),
    ] = 1800
    retry_seconds: Annotated[
        Seconds,
        field_doc(
            "Time, in seconds, before a gang that refused or did not acknowledge a request gets another "
            "one. It doubles each time, up to 2 hours. Defaults to 600."
        ),
    ] = 600
    method: Annotated[
        CheckpointMethods | None,
        field_doc(
            "Checkpoint methods for jobs without the annotation gpu-upgrader.io/checkpoint-method, in the"
            " format of that annotation. If unset, the plan waits for completion of these jobs."
        ),
    ] = None
    lanes: Annotated[Lanes, field_doc("Limits of concurrent checkpoints, by storage.")] = Lanes()
    wait_for: Annotated[
        list[Text],
        Meta(
            description="Owners with replicas, as NAMESPACE/KIND/NAME, whose pods are not evicted: the upgrade of "
            "their nodes waits until the pods have ended. If empty, these pods are evicted.",
            max_length=256,
        ),
    ] = []
