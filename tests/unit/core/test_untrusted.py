"""What others wrote is read within bounds, or not at all."""

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

import upgrader
from tests.support.examples import examples
from tests.support.hostile import DEEP, TOO_LONG, VALUES
from upgrader.core import timing, untrusted
from upgrader.core.errors import UnreadableError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("007", 7), ("0" * 5000, 0), ("9" * 15, untrusted.LARGEST)]
    + [(text, None) for text in ("9" * 16, TOO_LONG, "", "-1", "1.5", "٣", "²", " 1", "1k", None, 1)],
)
def test_numbers(text, expected):
    assert untrusted.parse_whole(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("8", 8), (9, 9), ("1k", 1000), ("2Ki", 2048), ("3M", 3_000_000), ("1Gi", 1 << 30), ("3e2", 300), ("12E2", 1200)]
    + [("1.5k", 1500), ("4000m", 4), ("5000000u", 5), ("2000000000n", 2), ("+1", 1), ("1T", 10**12), ("0", 0)]
    + [(value, None) for value in ("1500m", "0.5", "1E", "1Ei", TOO_LONG, f"{TOO_LONG}k", "", "k", "-1", -2, True)]
    + [(value, None) for value in ("1 k", "1kk", "1K", "1e99", "1e-99", None, 2.0)],
)
def test_quantities(value, expected):
    assert untrusted.parse_quantity(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172800),
        ("45", 45),
        ("0", 0),
        ("0s", 0),
        ("3650d", untrusted.LONGEST_SECONDS),
    ]
    + [
        (text, None)
        for text in ("3651d", "9999999999d", TOO_LONG, f"{TOO_LONG}s", "٣h", "soon", "-5m", "1.5h", "m", "")
    ],
)
def test_durations(text, expected):
    assert untrusted.parse_duration(text) == expected


def test_a_duration_may_have_a_bound_of_its_own():
    assert [untrusted.parse_duration(text, 60) for text in ("1m", "61s")] == [60, None]
    assert [untrusted.read_seconds(value, 60) for value in (60, 61, -1, True, "60", None)] == [
        60,
        None,
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T18:00:00Z", datetime(2026, 11, 21, 18, tzinfo=UTC)),
        ("2026-11-21T18:00:00+01:00", datetime(2026, 11, 21, 17, tzinfo=UTC)),
        ("2026-11-21T18:00:00", None),  # by which clock?
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59Z", None),
        ("1969-12-31T23:59:59Z", None),
        ("2026-02-30T00:00:00Z", None),
        ("tomorrow", None),
        ("\ud800", None),
        ("", None),
        (None, None),
    ],
)
def test_times(text, expected):
    assert untrusted.parse_instant(text) == expected


class Thing(msgspec.Struct):
    name: str


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{{"x":{DEEP}', "it is nested too deep"),
        (f'"{"x" * untrusted.JSON_BYTES}"', "it is longer than 1048576 bytes"),
        ("{}", "Object missing required field `name`"),
        (b'{"name":"\xff"}', None),
        ("\ud800", None),
        ("", None),
    ],
)
def test_a_document_that_cannot_be_read_is_one_error(text, why):
    with pytest.raises(UnreadableError, match=why):
        untrusted.decode_json(text, Thing)
    assert untrusted.read_json(text, Thing) is None


def test_a_document_is_read_as_its_type():
    assert untrusted.decode_json(b'{"name":"a","more":[[]]}', Thing) == Thing(name="a")
    assert untrusted.read_json(None, Thing) is None


def test_a_sentence_quotes_no_more_than_people_read():
    assert untrusted.quote_text("5 minutes") == "'5 minutes'"
    assert untrusted.quote_text("x" * 65) == repr("x" * 64 + "…")


def test_a_time_that_cannot_be_read_is_an_error_with_a_way_out():
    with pytest.raises(UnreadableError) as raised:
        timing.parse_time("9999-12-31T23:59:59Z")
    assert str(raised.value) == (
        "'9999-12-31T23:59:59Z' is no time\n"
        "Write one of the years 1970 to 8999 with its offset, such as 2026-11-21T18:00:00Z."
    )


@examples(100)
@given(VALUES)
def test_no_value_makes_a_reader_raise_or_give_what_cannot_be_computed_with(value):
    readers = (
        untrusted.parse_whole,
        untrusted.read_count,
        untrusted.parse_quantity,
        untrusted.parse_duration,
        untrusted.read_seconds,
    )
    for found in (read(value) for read in readers):
        assert found is None or 0 <= found <= untrusted.LARGEST
    at = untrusted.parse_instant(value)
    if at is not None:
        longest = timedelta(seconds=untrusted.LONGEST_SECONDS)
        assert untrusted.parse_instant(timing.format_time(at)) == at
        assert at - longest < at < at + longest
    if isinstance(value, str):
        untrusted.read_json(value, dict[str, str])
        assert len(untrusted.quote_text(value)) < 12 * untrusted.SHOWN


@pytest.mark.parametrize(
    ("token", "good"), [("t0.-~!", True), ("", False), ("a b", False), ("a\nb", False), ("é", False)]
)
def test_what_a_header_can_hold(token, good):
    assert untrusted.is_sendable(token) is good


def test_a_document_is_as_long_as_its_reader_allows():
    text = '"' + "x" * untrusted.JSON_BYTES + '"'
    with pytest.raises(UnreadableError, match="longer than 1048576 bytes"):
        untrusted.decode_json(text, str)
    assert untrusted.decode_json(text, str, untrusted.FILE_BYTES) == text[1:-1]


READS = {"json.loads", "json.load", "datetime.fromisoformat", "msgspec.json.decode"}
DOOR = "core/untrusted.py"
DOCUMENTS = ("images/wire.py", "images/drivers/recipe/definition.py")  # of registries, and of files made elsewhere


def test_there_is_no_other_door():
    """Whatever is decoded in these packages was written by others, or may have been."""
    root = Path(upgrader.__file__).parent
    files = [one for package in ("core", "reconcile", "checkpoint", "stack") for one in (root / package).rglob("*.py")]
    files += [root / name for name in DOCUMENTS]
    found = {
        f"{file.relative_to(root)}: {ast.unparse(call.func)}"
        for file in files
        if str(file.relative_to(root)) != DOOR
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in READS
    }
    assert found == set()
