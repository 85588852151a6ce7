"""Order of Debian versions, as dpkg has it. Debian policy, section 5.6.12; a property test compares with dpkg."""

import re

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_END = 0
_OPERATORS = {"<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,)}

Order = tuple[tuple[int, ...], ...]


def sort_key(version: str) -> tuple[int, Order, Order]:
    """Versions sort by this as dpkg sorts them."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    body, dash, revision = rest.rpartition("-")
    if not dash:
        body, revision = rest, ""
    return int(epoch), _order(body), _order(revision)


def upstream(version: str) -> str:
    """What the authors call it: 535.261.03 of 535.261.03-1~deb12u1."""
    rest = version.partition(":")[2] or version
    return rest.rpartition("-")[0] or rest


def satisfies(version: str, operator: str, wanted: str) -> bool:
    """Whether a version fulfils a dependency, as `>= 6.1.176-1`."""
    ours, theirs = sort_key(version), sort_key(wanted)
    return (ours > theirs) - (ours < theirs) in _OPERATORS[operator]


def _order(text: str) -> Order:
    """Parts without digits and numbers in turn, up to an empty one of both that stands for the end.

    A tilde sorts before the end, then come letters, then the rest. Nothing at all is the same as 0.
    """
    found = _PARTS.findall(text or "0")
    return tuple((*(_letter(one) for one in letters), _END, int(number or 0)) for letters, number in found)


def _letter(letter: str) -> int:
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
