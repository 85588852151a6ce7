"""Differences between a forecast and the forecast before, with the blockers that explain them."""

from msgspec import Struct

NAMED = 3
"""Blockers that are named; the status shows the rest."""


class Outlook(Struct, frozen=True, kw_only=True):
    """The rest of a rollout, in the numbers of a plan's status."""

    nodes: int = 0
    interruptions: int = 0
    blocked: int = 0
    blockers: frozenset[tuple[str, str]] = frozenset()  # subject and reason of those that the status shows


_WORDS = (("nodes", "node(s) to upgrade"), ("interruptions", "gang(s) to stop"), ("blocked", "node(s) blocked"))


def describe_changes(before: Outlook, after: Outlook) -> str:
    """The differences as a sentence; empty if there is none. The order of batches does not count."""
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
        for part in (", ".join(counts), _name_blockers("now blocked", new), _name_blockers("no longer blocked", gone))
        if part
    )


def _name_blockers(what: str, blockers: frozenset[tuple[str, str]]) -> str:
    if not blockers:
        return ""
    named = ", ".join(f"{subject} ({reason})" for subject, reason in sorted(blockers)[:NAMED])
    more = f" and {len(blockers) - NAMED} more" if len(blockers) > NAMED else ""
    return f"{what}: {named}{more}"
