"""Readers for all values from others: annotations, labels, specs, reports of nodes, answers of jobs.

Every reader is total. For any value, it raises nothing and returns None if the value is unreadable; only `decode_json`
raises, and only UnreadableError. Readable values are within the bounds below, so that sums of them can be computed,
written into a status (int64) and read by any JSON parser (2^53).
"""

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import TypeVar

import msgspec

from upgrader.core.errors import UnreadableError

LARGEST = 10**15 - 1
"""Larger numbers are unreadable; it has 15 digits."""

LONGEST_SECONDS = 10 * 365 * 86400
"""Ten years: longer durations are unreadable."""

JSON_BYTES = 1 << 20
"""Longer documents are unreadable. The parser limits the depth of nesting."""

FILE_BYTES = 64 << 20
"""The same for documents of files and of registries: they contain a whole fleet or a whole repository."""

LONGEST_NAME = 253
"""Characters of a name in Kubernetes."""

SHOWN = 64
"""Characters of an unreadable text that a sentence quotes."""

_YEARS = range(1970, 9000)  # any readable duration can be added to such a time, and subtracted from it
_DIGITS = 15
_INSTANT_LENGTH = 64

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]{1,15}[dhms]){1,8}")
_PART = re.compile(r"([0-9]+)([dhms])")

_QUANTITY = re.compile(
    r"\+?(?P<number>[0-9]{1,18}(?:\.[0-9]{0,18})?)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_SUFFIXES = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("", "m", "u", "n"))},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}

_TOKEN = re.compile(r"[!-~]+")

T = TypeVar("T")


def parse_whole(text: object) -> int | None:
    """A number of ASCII digits, from 0 to LARGEST."""
    if not isinstance(text, str) or not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= _DIGITS else None


def read_count(value: object) -> int | None:
    """A number of a JSON document, from 0 to LARGEST; a boolean is no number."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return value if good and isinstance(value, int) else None


def parse_quantity(value: object) -> int | None:
    """A Kubernetes quantity that is a whole number from 0 to LARGEST: `8`, `1k`, `2Ki`, `3e2`, `4000m`."""
    if not isinstance(value, str):
        return read_count(value)
    plain = parse_whole(value)
    if plain is not None:  # nearly always
        return plain
    match = _QUANTITY.fullmatch(value)
    if match is None:
        return None
    suffix = match["suffix"] or ""
    unit = _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:])
    amount = Fraction(match["number"]) * unit
    return int(amount) if amount.denominator == 1 and amount <= LARGEST else None


def parse_duration(text: object, longest: int = LONGEST_SECONDS) -> int | None:
    """`90s`, `30m`, `1h30m`, `2d` or plain seconds, as seconds; None above `longest`."""
    if not isinstance(text, str):
        return None
    length = parse_whole(text)
    if length is None and _DURATION.fullmatch(text):
        length = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return length if length is not None and length <= longest else None


def read_seconds(value: object, longest: int = LONGEST_SECONDS) -> int | None:
    """A duration in a JSON document, as a number of seconds; None above `longest`."""
    number = read_count(value)
    return number if number is not None and number <= longest else None


def parse_instant(text: object) -> datetime | None:
    """An RFC 3339 time of the years 1970 to 8999, in UTC; None also without an offset."""
    if not isinstance(text, str) or len(text) > _INSTANT_LENGTH:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        known = parsed.astimezone(UTC) if parsed.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
    return known if known is not None and known.year in _YEARS else None


def decode_json(text: str | bytes, type_: type[T], longest: int = JSON_BYTES) -> T:
    """A JSON document.

    Raises:
        UnreadableError: it is invalid, not of this type, longer than `longest` bytes, or nested too deep.
    """
    if len(text) > longest:
        raise UnreadableError(f"it is longer than {longest} bytes")
    try:
        return msgspec.json.decode(text, type=type_)
    except RecursionError as error:
        raise UnreadableError("it is nested too deep") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableError(str(error)) from error


def read_json(text: str | bytes | None, type_: type[T]) -> T | None:
    """A JSON document; None if there is none, or it is unreadable."""
    if not text:
        return None
    try:
        return decode_json(text, type_)
    except UnreadableError:
        return None


def cut_name(text: str) -> str:
    """A text, cut to the longest possible name; the rest of a longer text names no existing object."""
    return text[:LONGEST_NAME]


def is_sendable(token: str) -> bool:
    """Whether a header can contain a token: libraries quote a token with a line feed in their error."""
    return _TOKEN.fullmatch(token) is not None


def quote_text(text: str) -> str:
    """A text of others for a sentence: in quotes, and no longer than SHOWN."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
