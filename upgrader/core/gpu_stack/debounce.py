"""Debouncing of observations: how long one has been unchanged, and whether it flaps. Pure.

Drift has effects when it has been unchanged for STEADY. An observation that changes FLAPS times within WINDOW flaps: it
has no effect and is reported, until it has been unchanged for all of WINDOW.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.gpu_stack.drift import DriftReason, NodeDrift
from upgrader.core.model.fleet import NodeFacts

STEADY = timedelta(seconds=60)
"""Several steps of an idle stack (15 s), and longer than a kubelet takes from its start to its last new label."""
WINDOW = timedelta(minutes=10)
FLAPS = 3
"""A reboot changes a node's facts twice at most: when the node is back, and when its labels follow."""

_LABELS = frozenset({DriftReason.KERNEL_LABEL_DISAGREES, DriftReason.DRIVER_LABEL_DISAGREES})


class Observation(Struct, frozen=True, kw_only=True):
    """The last observation, since when it is unchanged, and its earlier changes within the window."""

    what: str  # empty: nothing to observe
    since: datetime
    changes: tuple[datetime, ...] = ()

    @property
    def is_flapping(self) -> bool:
        """Whether it changes too often to have an effect."""
        return len(self.changes) >= FLAPS

    def is_steady(self, now: datetime) -> bool:
        """Whether it has been unchanged for long enough to have an effect."""
        return bool(self.what) and not self.is_flapping and now - self.since >= STEADY


def update_seen(before: Observation | None, what: str, now: datetime) -> Observation | None:
    """The observation after another step; None if there is nothing to store."""
    if before is None:
        return Observation(what=what, since=now) if what else None
    same = before.what == what
    since = before.since if same else now
    changes = before.changes if same else (*before.changes, now)
    changes = tuple(at for at in changes if now - at < WINDOW)
    if not what and not changes:
        return None
    return Observation(what=what, since=since, changes=changes)


def needs_seen(node: NodeFacts, drift: NodeDrift | None) -> str:
    """All findings of a node that count, and its boot; empty if there is none, or while the node is upgraded."""
    if node.taken:
        return ""
    findings = drift.findings if drift is not None else ()
    reasons = sorted(finding.reason.value for finding in findings if finding.counts)
    return " ".join((node.boot_id, node.kernel, *reasons)) if reasons else ""


def labels_seen(node: NodeFacts, drift: NodeDrift | None) -> str:
    """The labels that disagree with the facts, and their values; empty if none does."""
    if drift is None or not any(finding.reason in _LABELS for finding in drift.findings):
        return ""
    return f"{node.boot_id} {node.kernel_label} {node.driver_version_label}"
