"""One object's trouble stays its own: an error is kept with what was looked at, and everything else is driven on.

What is met is told in the condition StepFailed of the plan or stack, and counted for Prometheus; it clears itself when
the step works again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from upgrader.api.kubernetes import Condition
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import (
    ClusterError,
    ConflictError,
    LostLeadershipError,
    NotFoundError,
    ThrottledError,
    UnreachableError,
    UpgraderError,
    describe,
)
from upgrader.reconcile.runtime.conditions import Told, condition
from upgrader.reconcile.runtime.context import Context, record
from upgrader.telemetry import metrics

log = structlog.get_logger()

PASSING = (ConflictError, NotFoundError, ThrottledError, UnreachableError, LostLeadershipError)
"""What ends a whole step and is no fault of what was looked at: it is made again, and no condition tells of it."""

STEP_FAILED = "StepFailed"
SHOWN = 5
"""Objects that the condition names."""


def faults_of(kind: ResourceKind[Any], present: Sequence[Condition] = ()) -> "Faults":
    """Nothing went wrong yet in the step of an object with these conditions."""
    return Faults(kind=kind.kind, known=next((one.message for one in present if one.type == STEP_FAILED), ""))


@dataclass(kw_only=True)
class Faults:
    """What went wrong in one step of an object, by what was looked at."""

    kind: str
    """Whose step it is, for the metric."""
    known: str = ""
    """What the condition tells already: that is not logged with a traceback each second."""
    found: dict[str, str] = field(default_factory=dict)
    throttled: ThrottledError | None = None
    """That the API server asks to wait."""

    def contained(self, subject: str) -> "Contained":
        """Keep what is raised inside with its subject, and go on after it.

        Raises:
            LostLeadershipError: nothing more may be written. What is no Exception (a cancellation) passes too.
        """
        return Contained(self, subject)

    def note(self, subject: str, error: Exception) -> None:
        """Keep an error with its subject."""
        metrics.RECONCILE_ERRORS.labels(kind=self.kind, error=type(error).__name__).inc()
        if isinstance(error, ThrottledError):
            self.throttled = error
            log.warning("throttled", of=subject, because=error.brief, details=error.details)
            return
        self.found[subject] = describe(error)
        if isinstance(error, UpgraderError) or self.found[subject] in self.known:
            log.warning("step failed", of=subject, because=self.found[subject])
        else:
            log.error("step failed for an unknown reason", of=subject, exc_info=error)

    def keep(self, subject: str, error: Exception) -> None:
        """Name what an earlier step has noted and this one does not try: it is neither counted nor logged anew."""
        self.found[subject] = describe(error)

    def check(self) -> None:
        """Raise what concerns the whole step, once all that could be driven was.

        Raises:
            ThrottledError: the API server asks to wait.
        """
        if self.throttled is not None:
            raise self.throttled

    def told(self, present: Sequence[Condition]) -> Iterator[Told]:
        """The condition StepFailed; nothing where nothing fails and none was ever told."""
        if self.found:
            named = [f"{subject}: {text}" for subject, text in sorted(self.found.items())]
            more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
            message = f"tried again, everything else goes on: {'; '.join([*named[:SHOWN], *more])}"
            yield Told(STEP_FAILED, "True", "Error", message)
        elif any(one.type == STEP_FAILED for one in present):
            yield Told(STEP_FAILED, "False", "NothingFails", "every part of the step works")


class Contained:
    """A context that no error of its subject leaves; see `Faults.contained`."""

    def __init__(self, faults: Faults, subject: str) -> None:
        self._faults, self._subject = faults, subject

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> bool:
        """Whether the error stays here."""
        if not isinstance(error, Exception) or isinstance(error, LostLeadershipError):
            return False
        if isinstance(error, ConflictError | NotFoundError):
            log.info("conflict, requeued", of=self._subject, because=error.brief)
        else:
            self._faults.note(self._subject, error)
        return True


async def tell(
    context: Context, kind: ResourceKind[Any], name: str, present: Sequence[Condition], faults: Faults
) -> None:
    """Write the condition StepFailed of an object where it says something new.

    Args:
        context: ports.
        kind: kind of the object; its status has conditions.
        name: name of the object, which is cluster-wide.
        present: its conditions, as this step has read them.
        faults: what went wrong in this step.
    """
    metrics.show_faults(kind.kind, name, len(faults.found))
    told = [condition(present, one, context.clock.now()) for one in faults.told(present)]
    if all(one in present for one in told):
        return
    try:
        fresh = await context.cluster.get(kind, name)  # its status may have been written meanwhile
        if fresh is not None:
            others = [one for one in fresh.status.conditions if one.type != STEP_FAILED]
            status = {"conditions": msgspec.to_builtins([*others, *told])}
            await record(context, kind, fresh.metadata, status)
    except ClusterError as error:
        log.info("told at the next step", kind=kind.kind, name=name, because=error.brief)
