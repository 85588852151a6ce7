"""When a gang ends by itself, as its owners say where nobody declared it: an estimate first, then the latest limits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from upgrader.core import timing, untrusted
from upgrader.core.patches import at
from upgrader.core.workloads.owner_objects import (
    JOB,
    LABEL_QUEUE,
    MPIJOB,
    RAYJOB,
    TRAINJOB,
    WORKLOAD,
    Work,
    entries,
    number,
)

LABEL_MAX_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
"""On what is queued: Kueue makes it its Workload's limit, which is asked first where that is seen."""

PAST_SECONDS = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
"""Seconds that a Workload ran before it was admitted last, as Kueue spells it in v1beta2, and in v1beta1."""

FRESH = timedelta(minutes=10)
"""An estimate of remaining time counts for that long."""


def estimate_of(works: Iterable[Work], now: datetime) -> datetime | None:
    """When its owners think that it ends, as far as they said so lately."""
    return max((found for work in works if (found := _estimate(work, now)) is not None), default=None)


def tells_time(work: Work) -> bool:
    """Whether what an owner thinks of its end counts only for a while."""
    return work.sort == TRAINJOB


def queue_limit(labels: Mapping[str, str]) -> int | None:
    """Seconds that Kueue lets something run that has these labels; None: it is in no queue, or has no limit."""
    return untrusted.whole(labels.get(LABEL_MAX_SECONDS)) or None if LABEL_QUEUE in labels else None


def limit_of(works: Sequence[Work], pods: Iterable[tuple[datetime, int]]) -> datetime | None:
    """When it is ended at the latest, whatever it declares; None: nobody ends it.

    Args:
        works: its owners, Kueue's Workload among them.
        pods: start and limit in seconds of pods that have one; a gang ends with the first of them.
    """
    limits = [found for work in works if (limit := _LIMITS.get(work.sort)) and (found := limit(work)) is not None]
    limits += [found for work in works if (found := _from_label(work)) is not None]
    limits += [found for start, seconds in pods if (found := _after(start, seconds)) is not None]
    return min(limits, default=None)


def _estimate(work: Work, now: datetime) -> datetime | None:
    """TrainJob's own: what is left at the time of its last report."""
    if not tells_time(work):
        return None
    said = at(work.status, ("trainerStatus",))
    when = untrusted.instant(at(said, ("lastUpdatedTime",)))
    if when is None or not now - FRESH <= when <= now + FRESH:
        return None
    return _after(when, at(said, ("estimatedRemainingSeconds",)))


def _from_start(*path: str) -> Callable[[Work], datetime | None]:
    """A limit in the spec, counted from status.startTime."""

    def limit(work: Work) -> datetime | None:
        return _after(untrusted.instant(work.status.get("startTime")), at(work.spec, path))

    return limit


def _from_admission(work: Work) -> datetime | None:
    """Kueue's: counted from its admission, what ran before that taken off."""
    since = next(
        (
            one.get("lastTransitionTime")
            for one in entries(work.status.get("conditions"))
            if one.get("type") == "Admitted" and one.get("status") == "True"
        ),
        None,
    )
    past = max(number(work.status.get(name)) for name in PAST_SECONDS)
    limit = number(work.spec.get("maximumExecutionTimeSeconds"))
    return _after(untrusted.instant(since), max(0, limit - past)) if limit else None


def _from_label(work: Work) -> datetime | None:
    """What Kueue is told for an owner, counted from its start: its Workload may know of time before that."""
    return _after(untrusted.instant(work.status.get("startTime")), queue_limit(work.labels))


def _after(start: datetime | None, limit: object) -> datetime | None:
    """`limit` seconds later. A limit of more than ten years, as 9223372036854775807, is written where none is meant."""
    seconds = untrusted.seconds(limit)
    return timing.after(start, seconds) if start is not None and seconds is not None else None


_LIMITS: Mapping[str, Callable[[Work], datetime | None]] = {
    JOB: _from_start("activeDeadlineSeconds"),
    TRAINJOB: _from_start("activeDeadlineSeconds"),
    MPIJOB: _from_start("runPolicy", "activeDeadlineSeconds"),
    RAYJOB: _from_start("activeDeadlineSeconds"),
    WORKLOAD: _from_admission,
}
