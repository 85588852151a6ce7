"""What the options of a rollout's pace mean, as the strategy that the forecast goes by."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from upgrader.core import timing, untrusted
from upgrader.core.errors import ConfigurationError, StaleForecastError
from upgrader.core.explain.gang_explanation import find_gangs
from upgrader.core.model.fleet import Snapshot
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget, Weekday, Window
from upgrader.core.workloads.checkpoint_annotations import KNOWN, seconds

DAYS = tuple(Weekday)
DAILY = "daily"
SHORTEST_DEADLINE = timedelta(minutes=1)
"""What an UpgradePlan takes at least."""

_WINDOW = re.compile(r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<start>[\d:]+)-(?P<end>[\d:]+)(?:\s+(?P<zone>\S+))?")
_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d")


def strategy(pace: Mapping[str, Any], now: datetime) -> StrategyFacts:
    """The strategy of `pace_options`; durations count from `now`.

    Raises:
        ConfigurationError: the first option that cannot be understood, and how it is written.
    """
    wait = duration("--wait-for-completion", pace["wait_for_completion"], least=0)
    return StrategyFacts(
        max_unavailable=budget(pace["max_unavailable"]),
        topology=tuple(_topology(text) for text in pace["topology_budget"]),
        min_available_gpus=pace["min_available_gpus"],
        canary=pace["canary"],
        soak_seconds=duration("--soak", pace["soak"], least=0),
        completion_until=now + timedelta(seconds=wait) if wait else None,
        deadline=_deadline(pace["deadline"], now) if pace["deadline"] is not None else None,
        windows=tuple(window(text) for text in pace["windows"]),
        lane_width=pace["lanes"],
        checkpoint_method=_method(pace["checkpoint_method"]),
        checkpoint_seconds=duration("--checkpoint-timeout", pace["checkpoint_timeout"]),
        expendable=tuple(pace["expendable"]),
        wait_for=tuple(pace["wait_for"]),
        placement_unguaranteed=pace["allow_unguaranteed_placement"],
        on_failure=OnFailure(pace["on_failure"]),
    )


def named(strategy: StrategyFacts, snapshot: Snapshot) -> StrategyFacts:
    """The same with whole names of gangs, as `namespace/kind/name`.

    Raises:
        ConfigurationError: no gang has such a name, or several: nobody should agree to a slip of the pen.
    """
    return msgspec.structs.replace(
        strategy,
        expendable=gangs_named("--expendable", strategy.expendable, snapshot),
        wait_for=gangs_named("--wait-for", strategy.wait_for, snapshot),
    )


def renewed(strategy: StrategyFacts, made_at: datetime, now: datetime) -> StrategyFacts:
    """The strategy of a forecast made at `made_at`, for a plan that starts now.

    Jobs are waited for as long as was said, counted from now; a deadline stays where it was.

    Raises:
        StaleForecastError: the deadline is over, or so near that no batch could start.
    """
    if strategy.deadline is not None and strategy.deadline - now < SHORTEST_DEADLINE:
        raise StaleForecastError(
            f"the forecast's deadline {timing.show(strategy.deadline)} is over",
            resolution="Make a new one with `upgrader plan -o FILE`.",
        )
    until = strategy.completion_until
    moved = now + (until - made_at) if until is not None else None
    return msgspec.structs.replace(strategy, completion_until=moved)


def budget(text: str, option: str = "--max-unavailable") -> int | str:
    """A number of GPUs, or a percentage.

    Raises:
        ConfigurationError: neither.
    """
    number = text.removesuffix("%")
    percent = number != text
    if not number.isdecimal() or int(number) < 1 or (percent and int(number) > 100):
        raise ConfigurationError(f"{option} {text} is no number of GPUs and no percentage")
    return text if percent else int(number)


def duration(option: str, text: str, *, least: int = 1) -> int:
    """Seconds of `90s`, `30m`, `1h30m`, `2d`.

    Raises:
        ConfigurationError: no duration.
    """
    if least == 0 and text in {"0", "0s"}:
        return 0
    found = seconds(text)
    if found is None:
        raise ConfigurationError(f"{option} {text} is no duration such as 90s, 30m, 1h30m or 2d")
    return found


def _method(text: str | None) -> str:
    unknown = [one for one in (part.strip() for part in (text or "").split(",")) if one and one not in KNOWN]
    if unknown:
        raise ConfigurationError(f"--checkpoint-method {unknown[0]} is none of {', '.join(KNOWN)}")
    return text or ""


def window(text: str) -> Window:
    """`Mon-Fri 22:00-06:00 Europe/Berlin`; without days on every day, without a zone in UTC.

    Raises:
        ConfigurationError: no such thing, or a time zone that this machine does not know.
    """
    found = _WINDOW.fullmatch(text.strip())
    start, end = (found["start"], found["end"]) if found is not None else ("", "")
    if found is None or not _CLOCK.fullmatch(start) or not (end == "24:00" or _CLOCK.fullmatch(end)):
        raise ConfigurationError(
            f"--window {text!r} is no window", resolution="It is written as 'Mon-Fri 22:00-06:00 Europe/Berlin'."
        )
    zone = found["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"--window {text!r}: this machine knows no time zone {zone}",
            resolution="Zones are named as Europe/Berlin, and come with the package tzdata.",
        ) from error
    days = _days(found["days"] or DAILY, text)
    return Window(days=days, start=start, end="00:00" if end == "24:00" else end, time_zone=zone)


def shown_window(one: Window) -> str:
    """A window as `window` reads it."""
    days = DAILY if len(one.days) == len(DAYS) else ",".join(DAYS[day] for day in one.days)
    return f"{days} {one.start}-{one.end} {one.time_zone}"


def _days(text: str, whole: str) -> tuple[int, ...]:
    if text.lower() == DAILY:
        return tuple(range(len(DAYS)))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip().capitalize() for piece in part.partition("-"))
        if first not in DAYS or (dash and last not in DAYS):
            raise ConfigurationError(f"--window {whole!r}: {part} is no day; they are {', '.join(DAYS)}")
        begin, length = DAYS.index(Weekday(first)), 1
        if dash:
            length += (DAYS.index(Weekday(last)) - begin) % len(DAYS)
        found.update((begin + number) % len(DAYS) for number in range(length))
    return tuple(sorted(found))


def _topology(text: str) -> TopologyBudget:
    key, equals, most = text.rpartition("=")
    if not equals or not key:
        raise ConfigurationError(
            f"--topology-budget {text} is no LABEL=GPUS",
            resolution="It is written as topology.kubernetes.io/rack=16 or example.com/power=25%.",
        )
    return TopologyBudget(key=key, max_unavailable=budget(most, f"--topology-budget {key}"))


def _deadline(text: str, now: datetime) -> datetime:
    found = seconds(text)
    if found is not None:
        return now + timedelta(seconds=found)
    end = untrusted.instant(text)
    if end is None:
        raise ConfigurationError(
            f"--deadline {text} is no duration such as 8h and no time such as 2026-12-01T06:00:00Z"
        )
    if end - now < SHORTEST_DEADLINE:
        raise ConfigurationError(f"--deadline {text} is over already")
    return end


def gangs_named(option: str, wanted: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The whole names of gangs as people name them.

    Raises:
        ConfigurationError: no gang has such a name, or several.
    """
    found: set[str] = set()
    for text in wanted:
        gangs = find_gangs(snapshot, text)
        if not gangs:
            known = ", ".join(sorted(gang.name for gang in snapshot.gangs)[:10]) or "none"
            raise ConfigurationError(
                f"{option} {text}: nothing of this name runs on the stack's nodes", details=f"there are: {known}"
            )
        if len(gangs) > 1:
            raise ConfigurationError(f"{option} {text} may be {' or '.join(gangs)}", resolution="Give the whole name.")
        found.update(gangs)
    return tuple(sorted(found))
