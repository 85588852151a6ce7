"""CheckpointRequest: The checkpoint request of one gang."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.api.fields import Resource, Seconds, Text, Timestamp, described, keyed_by
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core import endpoints
from upgrader.core.model.phases import RequestPhase
from upgrader.core.workloads.checkpoint_annotations import MOST_WORDS, SIGNALS


class OwnerRef(Resource, frozen=True, kw_only=True):
    kind: Annotated[Text, described("Kind that is switched off and on; docs/owners.md lists those that can be.")]
    api_version: Annotated[Text, described("Its group and version.")] = "batch/v1"
    name: Annotated[Text, described("Its name.")]
    uid: Annotated[Text, described("Its uid.")]


class Member(Resource, frozen=True, kw_only=True):
    pod: Annotated[Text, described("Pod name.")]
    uid: Annotated[Text, described("Pod uid: a replaced pod is another one.")]
    node: Annotated[Text, described("Node that it ran on.")]
    container: Annotated[Text, described("Container that answers.")]


MethodName = Literal["file", "exec", "http", "signal", "api", "none"]


class Placement(Resource, frozen=True, kw_only=True):
    left_behind: Annotated[list[str], described("Revisions that its pods must not meet.")] = []
    settled: Annotated[bool, described("Whether they run only on nodes that carry a revision.")] = False
    group: Annotated[str, described("Upgrade group whose taint they tolerate; empty: none.")] = ""
    pod_labels: Annotated[
        dict[str, str], described("Labels that all its pods carry; where there are none they are known by their owner.")
    ] = {}


# Bounds of the command, the endpoint and the signal are the API server's to keep: one that was stored before they were
# there, or by somebody else, must not keep all others from being read.


class CheckpointRequestSpec(Resource, frozen=True, kw_only=True):
    """The checkpoint request of one gang."""

    gang: Annotated[Text, described("Name of the gang.")]
    plan: Annotated[str | None, described("Plan that asks.")] = None
    group: Annotated[str | None, described("Upgrade group of the gang: its gangs are judged together.")] = None
    owner: Annotated[OwnerRef, described("What is switched off and on.")]
    members: Annotated[list[Member], described("Everybody who must acknowledge.")]
    method: Annotated[MethodName, described("How the job is asked for a checkpoint; none: it is not.")] = "file"
    fallbacks: Annotated[
        list[MethodName], described("Methods tried next, in this order, where a member cannot be asked by this one.")
    ] = []
    command: Annotated[
        list[str], Meta(description="Command of the method exec.", extra_json_schema={"maxItems": MOST_WORDS})
    ] = []
    endpoint: Annotated[
        str | None,
        Meta(
            description="Port and path of the method http, as :8080/checkpoint.",
            extra_json_schema={"maxLength": endpoints.LONGEST, "pattern": f"^{endpoints.PATTERN}$"},
        ),
    ] = None
    signal: Annotated[
        str | None,
        Meta(description="Signal of the method signal.", extra_json_schema={"pattern": f"^({'|'.join(SIGNALS)})$"}),
    ] = None
    leader: Annotated[
        Text | None, described("Uid of the member whose answer counts for all; everybody answers where there is none.")
    ] = None
    max_loss_seconds: Annotated[
        int, Meta(description="While no more has passed since asking, answers count that are not parked.", ge=0)
    ] = 0
    timeout_seconds: Annotated[Seconds, described("Longest one checkpoint may take.")] = 1800
    on_deadline: Annotated[
        Literal["wait", "skip-node", "terminate"], described("What no acknowledgement in time means.")
    ] = "wait"
    lane: Annotated[str, described("Storage that the checkpoint goes to; empty where nobody knows.")] = ""
    refused_before: Annotated[int, Meta(description="How often it refused earlier requests of the plan.", ge=0)] = 0
    unanswered_before: Annotated[
        int, Meta(description="How many earlier requests of the plan it did not acknowledge in time.", ge=0)
    ] = 0
    request_id: Annotated[int, described("Grows with every asking.")]
    asked_at: Annotated[Timestamp, described("When this asking began.")]
    park_seconds: Annotated[Seconds, described("How long a member stays parked without a word.")]
    placement: Annotated[
        Placement | None,
        described("Where its pods may run since the restart; deploy/admission-steering.yaml reads it."),
    ] = None


class Ack(Resource, frozen=True, kw_only=True):
    """One member's answer, whichever way it came."""

    pod_uid: Annotated[str, described("Uid of the pod that answered.")]
    request_id: Annotated[int, described("Which asking is answered.")]
    step: Annotated[int, described("Everything up to this step is safe.")]
    uri: Annotated[str, described("Where it is safe.")] = ""
    parked: Annotated[bool, described("Whether the member takes no further step until it is stopped or let go.")] = (
        False
    )
    refused: Annotated[str, described("Why the member refuses; empty where it does not.")] = ""
    retry_after_seconds: Annotated[
        Seconds | None, described("With a refusal: how long the gang wants to be left alone at least.")
    ] = None


class Missed(Resource, frozen=True, kw_only=True):
    """A member that did not hear a request."""

    pod_uid: Annotated[str, described("Uid of the pod that could not be asked.")]
    method: Annotated[MethodName, described("By which method.")]
    request_id: Annotated[int, described("Which asking it did not hear.")]
    at: Annotated[Timestamp, described("When, the last time.")]
    times: Annotated[int, Meta(description="How often in a row; the second time rules the method out.", ge=1)] = 1
    message: Annotated[str, described("Why.")] = ""


class CheckpointRequestStatus(Resource, frozen=True, kw_only=True):
    """How far the request is, and what was answered."""

    phase: Annotated[RequestPhase, described("Where the checkpoint request is.")] = RequestPhase.REQUESTED
    reason: Annotated[str, described("Why it waits or how it ended, as one word.")] = ""
    message: Annotated[str, described("The same as a sentence.")] = ""
    deadline: Annotated[Timestamp | None, described("When the present phase is given up.")] = None
    acks: Annotated[
        list[Ack],
        Meta(
            description="Answers, one per member; responders patch these where the method is `api`.",
            extra_json_schema=keyed_by("podUid"),
        ),
    ] = []
    acknowledged_step: Annotated[int | None, described("Step that all members acknowledged.")] = None
    marked_at: Annotated[Timestamp | None, described("When its turn in its lane came, and it was asked.")] = None
    parked_at: Annotated[Timestamp | None, described("When all had acknowledged, and taken no further step.")] = None
    parked_seconds: Annotated[
        int, Meta(description="How long earlier askings kept the gang that expired while it was parked.", ge=0)
    ] = 0
    missed: Annotated[
        list[Missed],
        Meta(
            description="Members that could not be asked by the present method.",
            extra_json_schema=keyed_by("podUid"),
        ),
    ] = []
    refused_at: Annotated[Timestamp | None, described("When the gang said no.")] = None
    retry_after_seconds: Annotated[
        Seconds | None, described("How long a gang that refused wants to be left alone at least.")
    ] = None
    stopped_at: Annotated[Timestamp | None, described("When the stop was ordered.")] = None
    terminated: Annotated[
        bool, described("Whether it was stopped without an acknowledgement, as the approval allows.")
    ] = False
    restart_by: Annotated[Timestamp | None, described("When the gang is restarted whatever became of the upgrade.")] = (
        None
    )
    restarted_at: Annotated[Timestamp | None, described("When the restart was ordered.")] = None
    restarted_early: Annotated[
        bool, described("Whether it was restarted on upgraded nodes before its own were given back.")
    ] = False
    restored_at: Annotated[Timestamp | None, described("When every member was seen past the acknowledged step.")] = None
    ended_at: Annotated[Timestamp | None, described("When the checkpoint request ended, however it did.")] = None
    progress: Annotated[list[int], described("Latest step of each member after the restart.")] = []


class CheckpointRequest(Resource, frozen=True, kw_only=True):
    """Ask a gang to make its work safe; stop it, restart it, see it progress."""

    metadata: ObjectMeta
    spec: CheckpointRequestSpec
    status: CheckpointRequestStatus = CheckpointRequestStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "CheckpointRequest"
