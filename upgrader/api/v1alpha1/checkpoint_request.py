"""CheckpointRequest: the checkpoint request of one gang."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.kubernetes import ObjectMeta
from upgrader.core import endpoints
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.fields import Resource, Seconds, Text, Timestamp, field_doc, keyed_by
from upgrader.core.model.phases import RequestPhase
from upgrader.core.workloads.checkpoint_annotations import MOST_WORDS, SIGNALS
from upgrader.core.workloads.placement import Placement


class OwnerRef(Resource, frozen=True, kw_only=True):
    kind: Annotated[
        Text,
        field_doc(
            "Kind of the object that is stopped and restarted. docs/concepts/owners.md lists the supported kinds."
        ),
    ]
    api_version: Annotated[Text, field_doc("API group and version of the object. Defaults to `batch/v1`.")] = "batch/v1"
    name: Annotated[Text, field_doc("Name of the object.")]
    uid: Annotated[Text, field_doc("UID of the object.")]


class Member(Resource, frozen=True, kw_only=True):
    pod: Annotated[Text, field_doc("Name of the pod.")]
    uid: Annotated[Text, field_doc("UID of the pod. A pod that replaces it is a different member.")]
    node: Annotated[Text, field_doc("Node that the pod ran on.")]
    container: Annotated[Text, field_doc("Container that acknowledges the request.")]


MethodName = Literal["file", "exec", "http", "signal", "api", "none"]


# Only the API server enforces the bounds of the command, the endpoint and the signal: one object that was stored before
# the bounds existed, or by another program, must not make a list of all objects undecodable.


class CheckpointRequestSpec(Resource, frozen=True, kw_only=True):
    """Gang and members that are requested to write a checkpoint, and the conditions of the request."""

    gang: Annotated[Text, field_doc("Name of the gang, as NAMESPACE/KIND/NAME. Immutable.")]
    plan: Annotated[
        str | None,
        field_doc("Name of the UpgradePlan that created the request. Unset for a request of `upgrader checkpoint`."),
    ] = None
    group: Annotated[
        str | None, field_doc("Upgrade group of the gang. The gangs of a group are stopped together or not at all.")
    ] = None
    owner: Annotated[OwnerRef, field_doc("Object that is stopped and restarted. Immutable.")]
    members: Annotated[list[Member], field_doc("Members that must acknowledge the request.")]
    method: Annotated[
        MethodName,
        field_doc(
            "Checkpoint method, which states how the members receive the request: `file` (file in a "
            "downward API volume), `exec` (command in the container), `http` (HTTP request), `signal` "
            "(signal to a process), `api` (the job reads this object and patches status.acks) or `none` "
            "(no checkpoint is requested). Defaults to `file`."
        ),
    ] = "file"
    fallbacks: Annotated[
        list[MethodName],
        field_doc("Checkpoint methods that are used next, in this order, if `method` does not reach a member."),
    ] = []
    command: Annotated[
        list[str],
        Meta(
            description="Command that the method `exec` runs in the container of each member. Unused by other methods.",
            extra_json_schema={"maxItems": MOST_WORDS},
        ),
    ] = []
    endpoint: Annotated[
        str | None,
        Meta(
            description="Port and path that the method `http` sends the request to, for example `:8080/checkpoint`. "
            "Unused by other methods.",
            extra_json_schema={"maxLength": endpoints.LONGEST, "pattern": f"^{endpoints.PATTERN}$"},
        ),
    ] = None
    signal: Annotated[
        str | None,
        Meta(
            description="Signal that the method `signal` sends, for example `SIGUSR1`. Unused by other methods.",
            extra_json_schema={"pattern": f"^({'|'.join(SIGNALS)})$"},
        ),
    ] = None
    leader: Annotated[
        Text | None,
        field_doc(
            "UID of the member whose acknowledgement counts for all members. If unset, every member must acknowledge."
        ),
    ] = None
    max_loss_seconds: Annotated[
        int,
        Meta(
            description="Time, in seconds, after the request during which the acknowledgement of a member counts "
            "even if the member is not parked. 0 means that all members must be parked. Defaults to 0.",
            ge=0,
        ),
    ] = 0
    timeout_seconds: Annotated[
        Seconds, field_doc("Maximum duration of one checkpoint, in seconds. Defaults to 1800.")
    ] = 1800
    on_deadline: Annotated[
        Literal["wait", "skip-node", "terminate"],
        field_doc(
            "Action to take if the gang does not acknowledge before the deadline. `wait`: the gang gets "
            "another request later. `skip-node`: the plan does not upgrade the nodes of the gang. "
            "`terminate`: the gang is ended if the approval lists it as expendable; otherwise, as "
            "`wait`. Defaults to `wait`."
        ),
    ] = "wait"
    lane: Annotated[
        str,
        field_doc("Lane of the gang: the storage that the checkpoint is written to. Empty if the storage is unknown."),
    ] = ""
    refused_before: Annotated[
        int, Meta(description="Number of earlier requests of the plan that the gang refused.", ge=0)
    ] = 0
    unanswered_before: Annotated[
        int,
        Meta(
            description="Number of earlier requests of the plan that the gang did not acknowledge before the deadline.",
            ge=0,
        ),
    ] = 0
    request_id: Annotated[int, field_doc("ID of the request. It increases each time the request is repeated.")]
    asked_at: Annotated[Timestamp, field_doc("Time at which the checkpoint was requested.")]
    park_seconds: Annotated[
        Seconds,
        field_doc(
            "Maximum time, in seconds, that a member stays parked. The member then continues, unless it "
            "has received another request."
        ),
    ]
    placement: Annotated[
        Placement | None,
        field_doc(
            "Nodes on which the pods may run after the restart. Set only if the pod template of the "
            "owner cannot be changed. The policy in deploy/admission-steering.yaml, if installed, "
            "applies it to the pods."
        ),
    ] = None


class MissedMember(Resource, frozen=True, kw_only=True):
    """A member that a request did not reach."""

    pod_uid: Annotated[str, field_doc("UID of the pod that could not be reached.")]
    method: Annotated[MethodName, field_doc("Method that was used.")]
    request_id: Annotated[int, field_doc("Value of spec.requestId that did not reach the pod.")]
    at: Annotated[Timestamp, field_doc("Time of the last attempt to send the request.")]
    times: Annotated[
        int,
        Meta(
            description="Number of consecutive failures. After the second failure the request is sent by the next "
            "entry of spec.fallbacks.",
            ge=1,
        ),
    ] = 1
    message: Annotated[str, field_doc("Human-readable message with the cause of the failure.")] = ""


class CheckpointRequestStatus(Resource, frozen=True, kw_only=True):
    """Observed state of the request, with the acknowledgements of the members."""

    phase: Annotated[RequestPhase, field_doc("Phase of the checkpoint request.")] = RequestPhase.REQUESTED
    reason: Annotated[str, field_doc("Machine-readable reason why the request waits, or how it ended.")] = ""
    message: Annotated[str, field_doc("Human-readable message for the reason.")] = ""
    deadline: Annotated[Timestamp | None, field_doc("Time at which the current phase times out.")] = None
    acks: Annotated[
        tuple[Ack, ...],
        Meta(
            description="Acknowledgements and refusals, at most one per member. With the method `api`, the job "
            "patches this list.",
            extra_json_schema=keyed_by("podUid"),
        ),
    ] = ()
    acknowledged_step: Annotated[
        int | None, field_doc("Training step that all members acknowledged. Unset until then.")
    ] = None
    admitted_at: Annotated[
        Timestamp | None,
        field_doc("Time at which the lane became available and the members were requested to write a checkpoint."),
    ] = None
    parked_at: Annotated[Timestamp | None, field_doc("Time at which the gang acknowledged the request.")] = None
    parked_seconds: Annotated[
        int,
        Meta(description="Total time, in seconds, that the gang was parked by earlier requests that expired.", ge=0),
    ] = 0
    missed: Annotated[
        list[MissedMember],
        Meta(
            description="Members that could not be reached by the current method.",
            extra_json_schema=keyed_by("podUid"),
        ),
    ] = []
    refused_at: Annotated[Timestamp | None, field_doc("Time at which the gang refused.")] = None
    retry_after_seconds: Annotated[
        Seconds | None, field_doc("Minimum time, in seconds, before the next request, as stated in the refusal.")
    ] = None
    stopped_at: Annotated[Timestamp | None, field_doc("Time at which the gang was stopped.")] = None
    terminated: Annotated[
        bool, field_doc("Whether the gang was stopped without an acknowledgement, as the approval allows.")
    ] = False
    restart_by: Annotated[
        Timestamp | None,
        field_doc(
            "Time at which the gang is restarted on other nodes, even if the upgrade of its nodes has not ended."
        ),
    ] = None
    restarted_at: Annotated[Timestamp | None, field_doc("Time at which the gang was restarted.")] = None
    restarted_early: Annotated[
        bool,
        field_doc(
            "Whether the gang was restarted on upgraded nodes before its own nodes were released (early restart)."
        ),
    ] = False
    restored_at: Annotated[
        Timestamp | None, field_doc("Time at which every member was observed past the acknowledged step.")
    ] = None
    ended_at: Annotated[Timestamp | None, field_doc("Time at which the checkpoint request reached a final phase.")] = (
        None
    )
    progress: Annotated[list[int], field_doc("Latest observed step of each member after the restart.")] = []


class CheckpointRequest(Resource, frozen=True, kw_only=True):
    """CheckpointRequest is the request to one gang to write a checkpoint and to park, with its stop and restart."""

    metadata: ObjectMeta
    spec: CheckpointRequestSpec
    status: CheckpointRequestStatus = CheckpointRequestStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "CheckpointRequest"
