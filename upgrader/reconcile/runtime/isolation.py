"""Isolation of errors: an error is recorded with its subject, and all other objects are reconciled.

Errors are written into the condition StepFailed of the plan or stack, and counted for Prometheus; the condition clears
when the step succeeds again.
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
    describe_error,
)
from upgrader.reconcile.runtime.conditions import ConditionContent, next_condition
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.telemetry import metrics

log = structlog.get_logger()

PASSING = (ConflictError, NotFoundError, ThrottledError, UnreachableError, LostLeadershipError)
"""Errors that end a whole step without a fault of an object: the step is repeated, and no condition is written."""

STEP_FAILED = "StepFailed"
SHOWN = 5
"""Number of objects that the condition names."""


def faults_of(kind: ResourceKind[Any], present: Sequence[Condition] = ()) -> "Faults":
    """The empty faults of a new step of an object with these conditions."""
    return Faults(
        kind=kind.kind, known=next((condition.message for condition in present if condition.type == STEP_FAILED), "")
    )


@dataclass(kw_only=True)
class Faults:
    """Errors in one step of an object, by subject."""

    kind: str
    """Kind of the object, for the metric."""
    known: str = ""
    """Message of the present condition: its errors are not logged with a traceback again."""
    errors: dict[str, str] = field(default_factory=dict)
    throttled: ThrottledError | None = None
    """The last throttling error of the API server."""

    def contained(self, subject: str) -> "FaultContainment":
        """Record an error raised inside with its subject, and continue after the block.

        Raises:
            LostLeadershipError: nothing more may be written. Other BaseExceptions (a cancellation) are raised too.
        """
        return FaultContainment(self, subject)

    def record_error(self, subject: str, error: Exception) -> None:
        """Record, count and log an error with its subject."""
        metrics.RECONCILE_ERRORS.labels(kind=self.kind, error=type(error).__name__).inc()
        if isinstance(error, ThrottledError):
            self.throttled = error
            log.warning("throttled by the API server", of=subject, because=error.brief, details=error.details)
            return
        self.errors[subject] = describe_error(error)
        if isinstance(error, UpgraderError) or self.errors[subject] in self.known:
            log.warning("step failed", of=subject, because=self.errors[subject])
        else:
            log.error("step failed for an unknown reason", of=subject, exc_info=error)

    def keep_error(self, subject: str, error: Exception) -> None:
        """Record an error of an earlier step that this step does not retry: it is neither counted nor logged."""
        self.errors[subject] = describe_error(error)

    def raise_fatal(self) -> None:
        """Raise an error that concerns the whole step, after all objects were reconciled.

        Raises:
            ThrottledError: the API server throttles.
        """
        if self.throttled is not None:
            raise self.throttled

    def conditions(self, present: Sequence[Condition]) -> Iterator[ConditionContent]:
        """The condition StepFailed; nothing if nothing fails and the object never had it."""
        if self.errors:
            named = [f"{subject}: {text}" for subject, text in sorted(self.errors.items())]
            more = [f"and {len(named) - SHOWN} more"] if len(named) > SHOWN else []
            message = f"these parts fail and are retried, all others continue: {'; '.join([*named[:SHOWN], *more])}"
            yield ConditionContent(STEP_FAILED, "True", "Error", message)
        elif any(condition.type == STEP_FAILED for condition in present):
            yield ConditionContent(STEP_FAILED, "False", "NothingFails", "every part of the step succeeds")


class FaultContainment:
    """A context manager that records errors of its subject; see `Faults.contained`."""

    def __init__(self, faults: Faults, subject: str) -> None:
        self._faults, self._subject = faults, subject

    def __enter__(self) -> None:
        """Enter without an effect."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> bool:
        """Whether the error is suppressed."""
        if not isinstance(error, Exception) or isinstance(error, LostLeadershipError):
            return False
        if isinstance(error, ConflictError | NotFoundError):
            log.info("conflict, requeued", of=self._subject, because=error.brief)
        else:
            self._faults.record_error(self._subject, error)
        return True


async def write_step_failed(
    context: Context, kind: ResourceKind[Any], name: str, present: Sequence[Condition], faults: Faults
) -> None:
    """Write the condition StepFailed of an object if it changes.

    Args:
        context: ports.
        kind: kind of the object; its status has conditions.
        name: name of the object, which is cluster-scoped.
        present: its conditions, as read by this step.
        faults: errors of this step.
    """
    metrics.show_faults(kind.kind, name, len(faults.errors))
    told = [next_condition(present, wanted, context.clock.now()) for wanted in faults.conditions(present)]
    if all(wanted in present for wanted in told):
        return
    try:
        fresh = await context.cluster.get(kind, name)  # its status may have changed since
        if fresh is not None:
            others = [other for other in fresh.status.conditions if other.type != STEP_FAILED]
            status = {"conditions": msgspec.to_builtins([*others, *told])}
            await record_status(context, kind, fresh.metadata, status)
    except ClusterError as error:
        log.info(
            "condition StepFailed not written, retried in the next step", kind=kind.kind, name=name, because=error.brief
        )
