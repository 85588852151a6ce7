"""What somebody may write where a number, a time or JSON is expected."""

from hypothesis import strategies as st

TOO_LONG = "9" * 5000  # more digits than int() takes
DEEP = "[" * 5000  # nested deeper than any parser of the project follows

_NUMBERS = (TOO_LONG, f"{TOO_LONG}d", "9999999999d", "٣", "٣h", "²", "1e99", "NaN", "-1", "0", "8")

TEXTS = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="0123456789dhmskMGiE.-+:TZ ", max_size=40),
    st.sampled_from((*_NUMBERS, DEEP, f'{{"x":{DEEP}', "file", "exec")),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.datetimes().map(lambda at: f"{at.isoformat()}+14:00"),
)
_LEAVES = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([9223372036854775807, -1, 0, 1, 3]),
)
VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
"""Any JSON."""
