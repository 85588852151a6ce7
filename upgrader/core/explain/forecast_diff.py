"""What a forecast that was made again says otherwise than the one before, and why, as far as its blockers show it."""

from msgspec import Struct

NAMED = 3
"""Blockers that are named; the status shows the rest."""


class Outlook(Struct, frozen=True, kw_only=True):
    """What is still to come, in the numbers that a plan's status keeps."""

    nodes: int = 0
    interruptions: int = 0
    blocked: int = 0
    blockers: frozenset[tuple[str, str]] = frozenset()  # subject and reason of those that the status shows


_WORDS = (("nodes", "node(s) to upgrade"), ("interruptions", "gang(s) to stop"), ("blocked", "node(s) blocked"))


def changes(before: Outlook, after: Outlook) -> str:
    """One sentence; empty where both say the same. The order of batches is nobody's news."""
    counts = [
        f"{getattr(after, name)} {word} instead of {getattr(before, name)}"
        for name, word in _WORDS
        if getattr(after, name) != getattr(before, name)
    ]
    if not counts:
        return ""
    new, gone = after.blockers - before.blockers, before.blockers - after.blockers
    return "; ".join(
        part
        for part in (", ".join(counts), _blockers("now blocked", new), _blockers("no longer blocked", gone))
        if part
    )


def _blockers(what: str, blockers: frozenset[tuple[str, str]]) -> str:
    if not blockers:
        return ""
    named = ", ".join(f"{subject} ({reason})" for subject, reason in sorted(blockers)[:NAMED])
    more = f" and {len(blockers) - NAMED} more" if len(blockers) > NAMED else ""
    return f"{what}: {named}{more}"
