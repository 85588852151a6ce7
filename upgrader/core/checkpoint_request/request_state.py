"""Views and decisions of a CheckpointRequest: values of core/checkpoint_request/request_machine."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.checkpoint_request.delivery_failures import Miss
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.model.upgrade_limits import gang_stop_seconds


class OwnerFacts(Struct, frozen=True, kw_only=True):
    """The owner of a gang as it is now."""

    present: bool = True  # False: deleted, or another object of that name
    suspended: bool = False  # its switch is off
    stopped_by: str = ""  # request recorded in the stop annotation
    ordered: bool = False  # another object orders it to stop, and it shows no effect yet
    unconfirmed: bool = False  # off, and its controller has not confirmed it yet
    active: int = 0  # pods that its status still counts, terminating ones too
    finished: bool = False  # ended without a stop
    wanted: int = 0
    queued: str = ""  # why a queue does not admit it, as a clause


class RequestView(Struct, frozen=True, kw_only=True):
    """A CheckpointRequest with all that its next step depends on."""

    method: str = "file"
    leader: str = ""  # uid of the member that answers for all
    max_loss_seconds: int = 0
    timeout_seconds: int = 1800  # longest one checkpoint may take
    on_deadline: str = "wait"
    fallbacks: tuple[str, ...] = ()  # methods that are tried if this one is ruled out
    misses: tuple[Miss, ...] = ()  # members that the request did not reach
    lane: str = ""
    admitted_at: datetime | None = None  # when its lane admitted it; None: not yet, or there are no lanes

    name: str
    gang: str
    phase: RequestPhase
    deadline: datetime | None
    request_id: int
    asked_at: datetime
    stop_before: datetime
    restart_by: datetime | None
    members: tuple[str, ...]  # uids of the pods that the request is sent to
    present: tuple[MemberFacts, ...]  # the owner's pods now
    answers: tuple[Ack, ...]
    owner: OwnerFacts
    acknowledged_step: int | None = None
    progress: tuple[int | None, ...] = ()  # latest step of each present member since the restart
    forbidden: str = ""  # what forbids a disruption of the gang now, as a sentence; read before the stop

    @property
    def asked_since(self) -> datetime:
        """When the request was sent to members, as opposed to when their group was."""
        return self.admitted_at or self.asked_at

    @property
    def turn_over(self) -> datetime:
        """When a requested checkpoint should have been written."""
        return self.asked_since + timedelta(seconds=self.timeout_seconds)


class GroupOfGang(Struct, frozen=True, kw_only=True):
    """The upgrade group of a gang, as far as the gang depends on it."""

    nodes: tuple[NodePhase, ...]
    siblings: tuple[RequestPhase, ...] = ()  # the other gangs of the group
    undo: bool = False  # plan aborted or deleted
    ask_until: datetime | None = None
    forbidden: str = ""  # why another gang of the group could not be stopped now: then none is stopped
    pods_left: str = ""  # that its nodes have pods beside members which a node upgrade waits for, as a sentence
    spares: bool = False  # upgraded nodes in service that are idle would take the gang now
    expendable: frozenset[str] = frozenset()  # gangs that the approval allows to stop without an acknowledgement
    turns: frozenset[str] | None = None  # requests that may write a checkpoint now; None: there are no lanes
    grown: str = ""  # that the gang is larger than its batch counts, as a sentence
    stop_seconds: int = gang_stop_seconds(())  # how long the gang may stay stopped


class GangAct(StrEnum):
    """What is done to a gang in a step."""

    REQUEST = "request"
    STOP = "suspend"
    RESUME = "resume"
    WITHDRAW = "withdraw"
    FENCE = "fence"  # a write to the owner raises its resourceVersion, so that a stop in flight gets a conflict


class GangDecision(Struct, frozen=True, kw_only=True):
    """The acts of a step, performed first, and the record that is written after them."""

    phase: RequestPhase
    reason: str = ""
    message: str = ""
    acts: tuple[GangAct, ...] = ()
    step: int | None = None
    new_id: bool = False  # request again under a higher id
    method: str = ""  # the request is sent by this method from now on
    admitted: bool = False  # its lane admits it now
    retry_after_seconds: int | None = None  # refused: how long no new request may be sent
