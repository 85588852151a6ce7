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


class Strategy(Resource, frozen=True, kw_only=True):
    max_unavailable: Annotated[
        int | str,
        Meta(
            description="Maximum number of GPUs that may be out of service at the same time, with all GPUs of a "
            "stopped gang counted: a number, or a percentage, rounded down. Defaults to 25%.",
            extra_json_schema={"x-kubernetes-int-or-string": True},
        ),
    ] = "25%"
    topology_budgets: Annotated[
        tuple[TopologyBudget, ...],
        Meta(
            description="Topology budgets: limits for parts of the pool.",
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
    canary: Annotated[Canary, field_doc("Canaries. The failure of a canary pauses the plan.")] = Canary()
    wait_for_completion_seconds: Annotated[
        int,
        Meta(
            description="Time, in seconds, after the start of the plan. Nodes whose jobs are all expected to end "
            "within this time are upgraded when the jobs have ended, without a checkpoint request. 0 "
            "disables the wait. Defaults to 3600.",
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
            "Time, in seconds, after the start of the plan after which no batch starts. A batch that is "
            "in progress is completed. If unset, there is no deadline."
        ),
    ] = None
    on_failure: Annotated[
        OnFailure,
        field_doc(
            "Action to take when more nodes or gangs than `toleratedFailures` have failed: Pause the "
            "plan, or Rollback to the previous revision. Defaults to Pause."
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
        field_doc("Maximum duration of one checkpoint, in seconds, for jobs that do not state one. Defaults to 1800."),
    ] = 1800
    retry_seconds: Annotated[
        Seconds,
        field_doc(
            "Time, in seconds, before a gang that refused or did not answer is requested again. It "
            "doubles each time, up to 2 hours. Defaults to 600."
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
            description="Owners with replicas whose pods are not evicted but waited for until they end, by gang name.",
            max_length=256,
        ),
    ] = []
