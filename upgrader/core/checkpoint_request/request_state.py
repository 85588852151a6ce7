"""What the next step of a request depends on, and what it is: values of core/checkpoint_request/request_machine."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.checkpoint_request.delivery_failures import Miss
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import NodePhase, RequestPhase


class OwnerFacts(Struct, frozen=True, kw_only=True):
    """The owner of a gang as it is now."""

    present: bool = True  # False: deleted, or another object of that name
    suspended: bool = False  # its switch is off
    stopped_by: str = ""  # request recorded in our stop annotation
    ordered: bool = False  # told to go off by another object, and nothing of that is to be seen yet
    unconfirmed: bool = False  # off, and its controller has not said so yet
    active: int = 0  # pods that its status still counts, terminating ones too
    finished: bool = False  # ended by itself
    wanted: int = 0
    queued: str = ""  # why a queue does not let it run, as a clause


class RequestView(Struct, frozen=True, kw_only=True):
    """A CheckpointRequest with everything that its next step depends on."""

    method: str = "file"
    leader: str = ""  # uid of the member whose answer counts for all
    max_loss_seconds: int = 0
    timeout_seconds: int = 1800  # longest one checkpoint may take
    on_deadline: str = "wait"
    fallbacks: tuple[str, ...] = ()  # methods that are tried where this one is ruled out
    misses: tuple[Miss, ...] = ()  # members that did not hear the request
    lane: str = ""
    marked_at: datetime | None = None  # when its turn in its lane came; None: it has none yet, or needs none

    name: str
    gang: str
    phase: RequestPhase
    deadline: datetime | None
    request_id: int
    asked_at: datetime
    stop_before: datetime
    restart_by: datetime | None
    members: tuple[str, ...]  # uids asked
    present: tuple[MemberFacts, ...]  # the owner's pods now
    answers: tuple[Answer, ...]
    owner: OwnerFacts
    acknowledged_step: int | None = None
    progress: tuple[int | None, ...] = ()  # latest step of each present member since the restart
    forbidden: str = ""  # what forbids to disrupt the gang right now, as a sentence; looked up before the stop

    @property
    def asked_since(self) -> datetime:
        """When members were asked, as opposed to when it was their group's turn."""
        return self.marked_at or self.asked_at

    @property
    def turn_over(self) -> datetime:
        """When a checkpoint that was asked for should have been made."""
        return self.asked_since + timedelta(seconds=self.timeout_seconds)


class GroupOfGang(Struct, frozen=True, kw_only=True):
    """The group as its gangs see it."""

    nodes: tuple[NodePhase, ...]
    siblings: tuple[RequestPhase, ...] = ()  # the other gangs of the group
    undo: bool = False  # plan aborted or deleted
    ask_until: datetime | None = None
    forbidden: str = ""  # why another gang of the group could not be stopped now: then none is
    pods_left: str = ""  # that its nodes have pods beside members which a node upgrade waits for, as a sentence
    spares: bool = False  # upgraded nodes in service that nobody uses would take the gang now
    expendable: frozenset[str] = frozenset()  # gangs that the approval lets us stop without an acknowledgement
    turns: frozenset[str] | None = None  # requests that may write a checkpoint now; None: there are no lanes
    grown: str = ""  # that the gang is larger than what its batch has counted, as a sentence


class GangAct(StrEnum):
    """What is done to a gang in a step."""

    ASK = "ask"
    STOP = "suspend"
    RESUME = "resume"
    WITHDRAW = "withdraw"
    FENCE = "fence"  # the owner's resourceVersion moves on, so that a stop that is still on its way finds a conflict


class GangDecision(Struct, frozen=True, kw_only=True):
    """Acts first, then the record."""

    phase: RequestPhase
    reason: str = ""
    message: str = ""
    acts: tuple[GangAct, ...] = ()
    step: int | None = None
    new_id: bool = False  # ask again under a higher id
    method: str = ""  # asked by this one from now on
    admitted: bool = False  # its turn in its lane begins now
    retry_after_seconds: int | None = None  # refused: how long the gang wants to be left alone
