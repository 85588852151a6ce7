"""What a forecast that was made again says otherwise than the one before, and why, as far as its holds show it."""

from msgspec import Struct

NAMED = 3
"""Holds that are named; the status shows the rest."""


class Outlook(Struct, frozen=True, kw_only=True):
    """What is still to come, in the numbers that a plan's status keeps."""

    nodes: int = 0
    interruptions: int = 0
    held: int = 0
    holds: frozenset[tuple[str, str]] = frozenset()  # subject and reason of those that the status shows


_WORDS = (("nodes", "node(s) to visit"), ("interruptions", "gang(s) to stop"), ("held", "node(s) held"))


def changes(before: Outlook, after: Outlook) -> str:
    """One sentence; empty where both say the same. The order of batches is nobody's news."""
    counts = [
        f"{getattr(after, name)} {word} instead of {getattr(before, name)}"
        for name, word in _WORDS
        if getattr(after, name) != getattr(before, name)
    ]
    if not counts:
        return ""
    new, gone = after.holds - before.holds, before.holds - after.holds
    return "; ".join(
        part for part in (", ".join(counts), _holds("now held", new), _holds("no longer held", gone)) if part
    )


def _holds(what: str, holds: frozenset[tuple[str, str]]) -> str:
    if not holds:
        return ""
    named = ", ".join(f"{subject} ({reason})" for subject, reason in sorted(holds)[:NAMED])
    more = f" and {len(holds) - NAMED} more" if len(holds) > NAMED else ""
    return f"{what}: {named}{more}"
