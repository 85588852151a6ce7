"""Placement of a gang whose request was deleted; pure.

Its group and the revisions that it must not run on are no longer recorded, so that all nodes on which its pods could be
placed are read: it is placed on nodes of one revision, and on no node in a node upgrade (law 5).
"""

from collections.abc import Sequence

from msgspec import Struct

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.workloads.placement import Placement, refuge_revision


class Shelter(Struct, frozen=True, kw_only=True):
    """Whether a gang can be restarted now, and where; else why not."""

    why: str = ""  # it waits for this; empty: it can be restarted
    placement: Placement | None = None  # None: its templates stay as they are


def find_shelter(nodes: Sequence[NodeFacts], wanted: str, *, steerable: bool, late: bool) -> Shelter:
    """The decision for one gang.

    Args:
        nodes: those on which its pods could be placed.
        wanted: revision that its plan leads to; empty if no plan is in progress.
        steerable: whether the templates of its owner can be changed.
        late: it has waited long enough: a stopped gang is restarted (law 9).
    """
    revisions = sorted({node.revision for node in nodes if node.revision})
    upgrading = sorted(node.name for node in nodes if node.taken)
    if not steerable:
        if late or (len(revisions) <= 1 and not upgrading):
            return Shelter()
        return Shelter(
            why=f"its pods cannot be kept off nodes in upgrades or of other revisions ({_describe_mix(nodes)})"
        )
    serving = [node for node in nodes if node.revision and node.ready and not node.taken and not node.unschedulable]
    present = sorted({node.revision for node in serving})
    if wanted not in present and not late:
        if wanted:
            return Shelter(why=f"no node of revision {wanted} is in service yet")
        if not present:
            return Shelter(why="no node of a revision is in service")
    best = refuge_revision(serving, present) or next(iter(present), "")
    chosen = wanted if wanted in present else best or wanted or next(iter(revisions), "")
    others = sorted({*revisions, wanted} - {chosen, ""})
    return Shelter(placement=Placement(left_behind=tuple(others), settled=bool(chosen)))


def _describe_mix(nodes: Sequence[NodeFacts]) -> str:
    revisions = sorted({node.revision for node in nodes if node.revision})
    upgrading = sum(node.taken for node in nodes)
    return f"revisions: {', '.join(revisions) or 'none'}; nodes in upgrades: {upgrading}"
