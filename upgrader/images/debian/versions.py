"""The order of Debian versions as in dpkg (Debian policy, section 5.6.12). A property test compares it with dpkg."""

import re

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_END = 0
_OPERATORS = {"<<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">>": (1,)}

Order = tuple[tuple[int, ...], ...]


def sort_key(version: str) -> tuple[int, Order, Order]:
    """A key that sorts versions as dpkg does."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    body, dash, revision = rest.rpartition("-")
    if not dash:
        body, revision = rest, ""
    return int(epoch), _order_key(body), _order_key(revision)


def upstream_version(version: str) -> str:
    """The upstream part of a version: 535.261.03 of 535.261.03-1~deb12u1."""
    rest = version.partition(":")[2] or version
    return rest.rpartition("-")[0] or rest


def satisfies_dependency(version: str, operator: str, wanted: str) -> bool:
    """Whether a version satisfies a dependency such as `>= 6.1.176-1`."""
    actual, required = sort_key(version), sort_key(wanted)
    return (actual > required) - (actual < required) in _OPERATORS[operator]


def _order_key(text: str) -> Order:
    """Alternating parts without digits and numbers, up to an empty pair that marks the end.

    A tilde sorts before the end, letters after it, then all other characters. An empty text is the same as 0.
    """
    parts = _PARTS.findall(text or "0")
    return tuple((*(_letter_weight(letter) for letter in letters), _END, int(number or 0)) for letters, number in parts)


def _letter_weight(letter: str) -> int:
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
