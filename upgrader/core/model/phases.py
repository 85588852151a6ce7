"""The state machines: their phases, the transitions, the deadlines, and the ways out.

`TRANSITIONS` is the only definition: the diagrams in docs/reference/phases.md and the crash points of the tests are
made from it.
"""

from enum import StrEnum

from msgspec import Struct


class DesiredState(StrEnum):
    """The state of a plan that its user requests."""

    RUNNING = "Running"
    PAUSED = "Paused"
    ABORTED = "Aborted"
    ROLLED_BACK = "RolledBack"


class OnFailure(StrEnum):
    """What happens to a plan when it has more failures than are tolerated."""

    PAUSE = "Pause"
    ROLLBACK = "Rollback"


class UpgradeReason(StrEnum):
    """Why a node is upgraded."""

    INSTALL = "Install"
    ROLLOUT = "Rollout"
    REPAIR = "Repair"


class PlanPhase(StrEnum):
    """Phases of a rollout."""

    PROPOSED = "Proposed"
    RUNNING = "Running"
    PAUSED = "Paused"
    ABORTING = "Aborting"
    COMPLETED = "Completed"
    ABORTED = "Aborted"
    SUPERSEDED = "Superseded"
    FAILED = "Failed"


class NodePhase(StrEnum):
    """Phases of a node upgrade."""

    PENDING = "Pending"
    PREPARING = "Preparing"
    PREPARED = "Prepared"
    TAINTING = "Tainting"
    DRAINING = "Draining"
    UNLOADING = "Unloading"
    UPGRADING = "Upgrading"
    LOADING = "Loading"
    VALIDATING = "Validating"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    NODE_DELETED = "NodeDeleted"


class RequestPhase(StrEnum):
    """Phases of the checkpoint request of a gang."""

    REQUESTED = "Requested"
    PARKED = "Parked"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    RESTARTING = "Restarting"
    RESTORED = "Restored"
    EXPIRED = "Expired"
    WITHDRAWN = "Withdrawn"
    ENDED = "Ended"


class DriverImagePhase(StrEnum):
    """Phases of a driver image."""

    PENDING = "Pending"
    BUILDING = "Building"
    VERIFYING = "Verifying"
    READY = "Ready"
    RETRYING = "Retrying"
    UNBUILDABLE = "Unbuildable"
    UNUSABLE = "Unusable"


class Transition(Struct, frozen=True, kw_only=True):
    """A row: from one phase of a machine to the phases that may follow.

    `seconds` is the default time until `out` is taken (None: it ends with its plan or by a user); for some phases a
    stack sets it (upgrade_limits.py). `act` names what is done in the cluster in this phase; if a phase only waits it
    is empty, and there is no crash point after it.
    """

    machine: str
    phase: StrEnum
    to: tuple[StrEnum, ...]
    seconds: int | None = None
    act: str = ""
    out: StrEnum | None = None


def _node_row(
    phase: NodePhase, *to: NodePhase, seconds: int | None, act: str = "", out: NodePhase | None = None
) -> Transition:
    return Transition(machine="NodeUpgrade", phase=phase, to=to, seconds=seconds, act=act, out=out)


def _request_row(
    phase: RequestPhase, *to: RequestPhase, seconds: int | None, act: str = "", out: RequestPhase | None = None
) -> Transition:
    return Transition(machine="CheckpointRequest", phase=phase, to=to, seconds=seconds, act=act, out=out)


def _plan_row(phase: PlanPhase, *to: PlanPhase, act: str = "") -> Transition:
    return Transition(machine="UpgradePlan", phase=phase, to=to, act=act)


def _image_row(
    phase: DriverImagePhase,
    *to: DriverImagePhase,
    seconds: int | None = None,
    act: str = "",
    out: DriverImagePhase | None = None,
) -> Transition:
    return Transition(machine="DriverImage", phase=phase, to=to, seconds=seconds, act=act, out=out)


_N, _R, _P, _D = NodePhase, RequestPhase, PlanPhase, DriverImagePhase

TRANSITIONS: tuple[Transition, ...] = (
    _node_row(_N.PENDING, _N.PREPARING, _N.FAILED, _N.NODE_DELETED, seconds=None),
    _node_row(
        _N.PREPARING,
        _N.PREPARED,
        _N.RELEASING,
        _N.FAILED,
        _N.NODE_DELETED,
        seconds=900,
        act="prepare pod",
        out=_N.FAILED,
    ),
    _node_row(_N.PREPARED, _N.TAINTING, _N.RELEASING, _N.FAILED, _N.NODE_DELETED, seconds=2700, out=_N.FAILED),
    _node_row(_N.TAINTING, _N.DRAINING, _N.RELEASING, _N.NODE_DELETED, seconds=60, act="taint", out=_N.RELEASING),
    _node_row(
        _N.DRAINING, _N.UNLOADING, _N.RELEASING, _N.NODE_DELETED, seconds=1800, act="evict others", out=_N.RELEASING
    ),
    _node_row(
        _N.UNLOADING,
        _N.UPGRADING,
        _N.LOADING,
        _N.UNLOADING,
        _N.FAILED,
        _N.NODE_DELETED,
        seconds=300,
        act="operands off",
        out=_N.UNLOADING,
    ),
    _node_row(
        _N.UPGRADING,
        _N.LOADING,
        _N.UNLOADING,
        _N.FAILED,
        _N.NODE_DELETED,
        seconds=2700,
        act="upgrade Job",
        out=_N.UNLOADING,
    ),
    _node_row(
        _N.LOADING,
        _N.VALIDATING,
        _N.RELEASING,
        _N.UNLOADING,
        _N.FAILED,
        _N.NODE_DELETED,
        seconds=900,
        act="operands on",
        out=_N.UNLOADING,
    ),
    _node_row(
        _N.VALIDATING,
        _N.RELEASING,
        _N.UNLOADING,
        _N.FAILED,
        _N.NODE_DELETED,
        seconds=1800,
        act="validation pod",
        out=_N.UNLOADING,
    ),
    _node_row(_N.RELEASING, _N.SUCCEEDED, _N.FAILED, _N.NODE_DELETED, seconds=600, act="release", out=_N.SUCCEEDED),
    _node_row(_N.SUCCEEDED, seconds=None),
    _node_row(_N.FAILED, seconds=None),
    _node_row(_N.NODE_DELETED, seconds=None),
    _request_row(
        _R.REQUESTED, _R.PARKED, _R.WITHDRAWN, _R.EXPIRED, _R.ENDED, seconds=2700, act="request", out=_R.WITHDRAWN
    ),
    _request_row(_R.PARKED, _R.STOPPING, _R.WITHDRAWN, _R.EXPIRED, _R.ENDED, seconds=2700, out=_R.WITHDRAWN),
    _request_row(_R.EXPIRED, _R.REQUESTED, _R.WITHDRAWN, _R.ENDED, seconds=60, act="request again", out=_R.WITHDRAWN),
    _request_row(
        _R.STOPPING, _R.STOPPED, _R.RESTARTING, _R.WITHDRAWN, _R.ENDED, seconds=1800, act="suspend", out=_R.RESTARTING
    ),
    # With the default limits of the group's upgrades (gang_stop_seconds of upgrade_limits.py).
    _request_row(_R.STOPPED, _R.RESTARTING, _R.ENDED, seconds=14400, out=_R.RESTARTING),
    _request_row(_R.RESTARTING, _R.RESTORED, _R.ENDED, seconds=1800, act="resume", out=_R.ENDED),
    _request_row(_R.RESTORED, seconds=None),
    _request_row(_R.WITHDRAWN, seconds=None),
    _request_row(_R.ENDED, seconds=None),
    _plan_row(_P.PROPOSED, _P.RUNNING, _P.ABORTED, _P.SUPERSEDED),
    _plan_row(_P.RUNNING, _P.PAUSED, _P.ABORTING, _P.COMPLETED, _P.SUPERSEDED, _P.FAILED, act="start batch"),
    _plan_row(_P.PAUSED, _P.RUNNING, _P.ABORTING, _P.COMPLETED, _P.SUPERSEDED, _P.FAILED),
    _plan_row(_P.ABORTING, _P.ABORTED),
    _plan_row(_P.COMPLETED),
    _plan_row(_P.ABORTED),
    _plan_row(_P.SUPERSEDED),
    _plan_row(_P.FAILED),
    _image_row(_D.PENDING, _D.BUILDING, _D.VERIFYING, _D.RETRYING, _D.UNUSABLE),
    _image_row(_D.BUILDING, _D.VERIFYING, _D.RETRYING, _D.UNBUILDABLE, seconds=7200, act="build Job", out=_D.RETRYING),
    _image_row(_D.VERIFYING, _D.READY, _D.RETRYING, _D.UNUSABLE, seconds=600, out=_D.RETRYING),
    _image_row(_D.RETRYING, _D.PENDING, _D.BUILDING, _D.VERIFYING, _D.UNUSABLE),
    _image_row(_D.READY, _D.VERIFYING),
    _image_row(_D.UNBUILDABLE, _D.PENDING, _D.BUILDING, _D.VERIFYING, _D.RETRYING, _D.UNUSABLE),
    _image_row(_D.UNUSABLE, _D.PENDING, _D.BUILDING, _D.VERIFYING),
)


def transition_of(phase: StrEnum) -> Transition:
    """The row of a phase.

    Raises:
        KeyError: the phase belongs to no machine.
    """
    return _BY_PHASE[type(phase), phase]


def is_final(phase: StrEnum) -> bool:
    """Whether no phase follows this phase."""
    return not transition_of(phase).to


def crash_points() -> tuple[tuple[str, str, str], ...]:
    """Every point at which a controller may be killed: machine, phase, and after-intent, after-act or after-record.

    The first phase of an object that a user creates has no intent of the controller; a phase that only waits has no
    act.
    """
    points: list[tuple[str, str, str]] = []
    for transition in TRANSITIONS:
        if not transition.to:
            continue
        stages = ["after-act"] if transition.act else []
        if transition.phase not in {PlanPhase.PROPOSED, DriverImagePhase.PENDING}:
            stages.insert(0, "after-intent")
        points += [(transition.machine, transition.phase.value, stage) for stage in (*stages, "after-record")]
    return tuple(points)


_BY_PHASE = {(type(t.phase), t.phase): t for t in TRANSITIONS}
