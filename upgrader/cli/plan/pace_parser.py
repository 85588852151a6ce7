"""Parser of the pace options: the strategy for the forecast."""

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
from upgrader.core.model.validation import ValidationLevel
from upgrader.core.workloads.checkpoint_annotations import METHODS, parse_seconds

DAYS = tuple(Weekday)
DAILY = "daily"
SHORTEST_DEADLINE = timedelta(minutes=1)
"""Minimum of the field deadlineSeconds of an UpgradePlan."""

_WINDOW = re.compile(r"(?:(?P<days>[A-Za-z,-]+)\s+)?(?P<start>[\d:]+)-(?P<end>[\d:]+)(?:\s+(?P<zone>\S+))?")
_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d")


def parse_strategy(pace: Mapping[str, Any], now: datetime) -> StrategyFacts:
    """The strategy of `pace_options`; durations count from `now`.

    Raises:
        ConfigurationError: an option is not valid; the message has the expected format.
    """
    wait = parse_duration("--wait-for-completion", pace["wait_for_completion"], least=0)
    return StrategyFacts(
        max_unavailable=parse_budget(pace["max_unavailable"]),
        topology=tuple(_parse_topology_budget(text) for text in pace["topology_budget"]),
        min_available_gpus=pace["min_available_gpus"],
        canary=pace["canary"],
        soak_seconds=parse_duration("--soak", pace["soak"], least=0),
        validation=ValidationLevel(pace["validation"]),
        canary_validation=ValidationLevel(pace["canary_validation"]) if pace["canary_validation"] else None,
        completion_until=now + timedelta(seconds=wait) if wait else None,
        deadline=_parse_deadline(pace["deadline"], now) if pace["deadline"] is not None else None,
        windows=tuple(parse_window(text) for text in pace["windows"]),
        lane_width=pace["lanes"],
        checkpoint_method=_parse_methods(pace["checkpoint_method"]),
        checkpoint_seconds=parse_duration("--checkpoint-timeout", pace["checkpoint_timeout"]),
        expendable=tuple(pace["expendable"]),
        wait_for=tuple(pace["wait_for"]),
        placement_unguaranteed=pace["allow_unguaranteed_placement"],
        on_failure=OnFailure(pace["on_failure"]),
    )


def resolve_gang_names(strategy: StrategyFacts, snapshot: Snapshot) -> StrategyFacts:
    """The strategy with full names of gangs, `namespace/kind/name`.

    Raises:
        ConfigurationError: a name matches no gang, or several.
    """
    return msgspec.structs.replace(
        strategy,
        expendable=gangs_named("--expendable", strategy.expendable, snapshot),
        wait_for=gangs_named("--wait-for", strategy.wait_for, snapshot),
    )


def renew_strategy(strategy: StrategyFacts, made_at: datetime, now: datetime) -> StrategyFacts:
    """The strategy of a forecast made at `made_at`, for a plan that starts now.

    The wait for completion keeps its length and counts from now; a deadline does not move.

    Raises:
        StaleForecastError: the deadline has passed, or is too near for a batch to start.
    """
    if strategy.deadline is not None and strategy.deadline - now < SHORTEST_DEADLINE:
        raise StaleForecastError(
            f"the deadline of the forecast has passed: {timing.format_time(strategy.deadline)}",
            resolution="Create a new forecast with `upgrader plan -o FILE`.",
        )
    until = strategy.completion_until
    moved = now + (until - made_at) if until is not None else None
    return msgspec.structs.replace(strategy, completion_until=moved)


def parse_budget(text: str, option: str = "--max-unavailable") -> int | str:
    """A number of GPUs, or a percentage.

    Raises:
        ConfigurationError: the text is neither.
    """
    number = text.removesuffix("%")
    percent = number != text
    if not number.isdecimal() or int(number) < 1 or (percent and int(number) > 100):
        raise ConfigurationError(
            f"{option} {text}: must be a number of GPUs (at least 1) or a percentage from 1% to 100%"
        )
    return text if percent else int(number)


def parse_duration(option: str, text: str, *, least: int = 1) -> int:
    """Seconds of `90s`, `30m`, `1h30m`, `2d`.

    Raises:
        ConfigurationError: the text is not a duration.
    """
    if least == 0 and text in {"0", "0s"}:
        return 0
    seconds = parse_seconds(text)
    if seconds is None:
        raise ConfigurationError(f"{option} {text}: must be a duration such as 90s, 30m, 1h30m or 2d")
    return seconds


def _parse_methods(text: str | None) -> str:
    unknown = [name for name in (part.strip() for part in (text or "").split(",")) if name and name not in METHODS]
    if unknown:
        raise ConfigurationError(f"--checkpoint-method {unknown[0]}: must be one of {', '.join(METHODS)}")
    return text or ""


def parse_window(text: str) -> Window:
    """A window such as `Mon-Fri 22:00-06:00 Europe/Berlin`; days default to every day, the zone to UTC.

    Raises:
        ConfigurationError: the text is not a window, or this machine has no data of the time zone.
    """
    match = _WINDOW.fullmatch(text.strip())
    start, end = (match["start"], match["end"]) if match is not None else ("", "")
    if match is None or not _CLOCK.fullmatch(start) or not (end == "24:00" or _CLOCK.fullmatch(end)):
        raise ConfigurationError(
            f"--window {text!r} is not valid", resolution="Use the format 'Mon-Fri 22:00-06:00 Europe/Berlin'."
        )
    zone = match["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"--window {text!r}: time zone {zone} not found on this machine",
            resolution="Use an IANA name such as Europe/Berlin. The package tzdata contains the time zones.",
        ) from error
    days = _parse_days(match["days"] or DAILY, text)
    return Window(days=days, start=start, end="00:00" if end == "24:00" else end, time_zone=zone)


def shown_window(window: Window) -> str:
    """A window in the format that `window` parses."""
    days = ",".join(window.days) or DAILY
    return f"{days} {window.start}-{window.end} {window.time_zone}"


def _parse_days(text: str, whole: str) -> tuple[Weekday, ...]:
    """Days in the order of the week; empty means every day."""
    if text.lower() == DAILY:
        return ()
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip().capitalize() for piece in part.partition("-"))
        if first not in DAYS or (dash and last not in DAYS):
            raise ConfigurationError(f"--window {whole!r}: {part} is not a day; use {', '.join(DAYS)}")
        begin, length = DAYS.index(Weekday(first)), 1
        if dash:
            length += (DAYS.index(Weekday(last)) - begin) % len(DAYS)
        numbers.update((begin + number) % len(DAYS) for number in range(length))
    return tuple(DAYS[number] for number in sorted(numbers)) if len(numbers) < len(DAYS) else ()


def _parse_topology_budget(text: str) -> TopologyBudget:
    key, equals, most = text.rpartition("=")
    if not equals or not key:
        raise ConfigurationError(
            f"--topology-budget {text}: must be LABEL=GPUS or LABEL=PERCENT",
            resolution="Examples: topology.kubernetes.io/rack=16, example.com/power=25%.",
        )
    return TopologyBudget(key=key, max_unavailable=parse_budget(most, f"--topology-budget {key}"))


def _parse_deadline(text: str, now: datetime) -> datetime:
    seconds = parse_seconds(text)
    if seconds is not None:
        return now + timedelta(seconds=seconds)
    end = untrusted.parse_instant(text)
    if end is None:
        raise ConfigurationError(
            f"--deadline {text}: must be a duration such as 8h or a time such as 2026-12-01T06:00:00Z"
        )
    if end - now < SHORTEST_DEADLINE:
        raise ConfigurationError(f"--deadline {text}: must be at least one minute in the future")
    return end


def gangs_named(option: str, wanted: Sequence[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The full names of gangs for any names that identify them.

    Raises:
        ConfigurationError: a name matches no gang, or several.
    """
    names: set[str] = set()
    for text in wanted:
        gangs = find_gangs(snapshot, text)
        if not gangs:
            known = ", ".join(sorted(gang.name for gang in snapshot.gangs)[:10]) or "none"
            raise ConfigurationError(
                f"{option} {text}: gang not found on the nodes of the stack", details=f"gangs: {known}"
            )
        if len(gangs) > 1:
            raise ConfigurationError(
                f"{option} {text}: ambiguous name: {' or '.join(gangs)}", resolution="Specify the full name."
            )
        names.update(gangs)
    return tuple(sorted(names))
