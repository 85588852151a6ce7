"""The natural end of a gang by its owners, if it declares none: their estimate, and the limits of its run time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from upgrader.core import timing, untrusted
from upgrader.core.patches import value_at
from upgrader.core.workloads.owner_objects import (
    JOB,
    LABEL_QUEUE,
    MPIJOB,
    RAYJOB,
    TRAINJOB,
    WORKLOAD,
    Work,
    object_entries,
    read_count,
)

LABEL_MAX_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
"""On queued objects: Kueue writes it into its Workload as the limit, and that is read first if the Workload exists."""

PAST_SECONDS = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
"""Seconds that a Workload ran before its last admission, as Kueue spells it in v1beta2, and in v1beta1."""

FRESH = timedelta(minutes=10)
"""How long an estimate of remaining time counts."""


def estimate_of(works: Iterable[Work], now: datetime) -> datetime | None:
    """The end of a gang by recent estimates of its owners."""
    return max((end for work in works if (end := _trainjob_estimate(work, now)) is not None), default=None)


def tells_time(work: Work) -> bool:
    """Whether an owner reports estimates of its end, which count only for a while."""
    return work.sort == TRAINJOB


def queue_limit(labels: Mapping[str, str]) -> int | None:
    """Seconds that Kueue allows an object with these labels to run; None: it is in no queue, or has no limit."""
    return untrusted.parse_whole(labels.get(LABEL_MAX_SECONDS)) or None if LABEL_QUEUE in labels else None


def limit_of(works: Sequence[Work], pods: Iterable[tuple[datetime, int]]) -> datetime | None:
    """When a gang is ended at the latest, whatever it declares; None: there is no limit.

    Args:
        works: its owners, Kueue's Workload among them.
        pods: start and limit in seconds of pods that have one; a gang ends with the first of them.
    """
    limits = [end for work in works if (limit := _LIMITS.get(work.sort)) and (end := limit(work)) is not None]
    limits += [end for work in works if (end := _from_label(work)) is not None]
    limits += [end for start, seconds in pods if (end := _seconds_after(start, seconds)) is not None]
    return min(limits, default=None)


def _trainjob_estimate(work: Work, now: datetime) -> datetime | None:
    """A TrainJob's estimate: the remaining time at its last report."""
    if not tells_time(work):
        return None
    report = value_at(work.status, ("trainerStatus",))
    when = untrusted.parse_instant(value_at(report, ("lastUpdatedTime",)))
    if when is None or not now - FRESH <= when <= now + FRESH:
        return None
    return _seconds_after(when, value_at(report, ("estimatedRemainingSeconds",)))


def _from_start(*path: str) -> Callable[[Work], datetime | None]:
    """A limit in the spec, counted from status.startTime."""

    def limit(work: Work) -> datetime | None:
        return _seconds_after(untrusted.parse_instant(work.status.get("startTime")), value_at(work.spec, path))

    return limit


def _from_admission(work: Work) -> datetime | None:
    """Kueue's limit: counted from its admission, less the time that ran before."""
    since = next(
        (
            condition.get("lastTransitionTime")
            for condition in object_entries(work.status.get("conditions"))
            if condition.get("type") == "Admitted" and condition.get("status") == "True"
        ),
        None,
    )
    past = max(read_count(work.status.get(name)) for name in PAST_SECONDS)
    limit = read_count(work.spec.get("maximumExecutionTimeSeconds"))
    return _seconds_after(untrusted.parse_instant(since), max(0, limit - past)) if limit else None


def _from_label(work: Work) -> datetime | None:
    """The limit in Kueue's label, counted from the owner's start: its Workload may count time before that."""
    return _seconds_after(untrusted.parse_instant(work.status.get("startTime")), queue_limit(work.labels))


def _seconds_after(start: datetime | None, limit: object) -> datetime | None:
    """`limit` seconds later. A limit of more than ten years, such as 9223372036854775807, means no limit."""
    seconds = untrusted.read_seconds(limit)
    return timing.add_seconds(start, seconds) if start is not None and seconds is not None else None


_LIMITS: Mapping[str, Callable[[Work], datetime | None]] = {
    JOB: _from_start("activeDeadlineSeconds"),
    TRAINJOB: _from_start("activeDeadlineSeconds"),
    MPIJOB: _from_start("runPolicy", "activeDeadlineSeconds"),
    RAYJOB: _from_start("activeDeadlineSeconds"),
    WORKLOAD: _from_admission,
}
