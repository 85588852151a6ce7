"""How long something has been seen the same, and whether it goes to and fro. Pure.

Drift is acted on when it has been the same for STEADY. What changes FLAPS times within WINDOW flaps: it causes nothing
and is reported, until it has been the same for all of WINDOW.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.gpu_stack.drift import DriftReason, NodeDrift
from upgrader.core.model.fleet import NodeFacts

STEADY = timedelta(seconds=60)
"""Several looks of an idle stack (15 s), and longer than a kubelet takes from its start to its last new label."""
WINDOW = timedelta(minutes=10)
FLAPS = 3
"""A reboot changes what a node shows twice at most: when it comes back, and when its labels follow."""

_LABELS = frozenset({DriftReason.KERNEL_LABEL_DISAGREES, DriftReason.DRIVER_LABEL_DISAGREES})


class Seen(Struct, frozen=True, kw_only=True):
    """What was seen last, since when without a change, and when it changed before within the window."""

    what: str  # empty: nothing to speak of
    since: datetime
    changes: tuple[datetime, ...] = ()

    @property
    def flaps(self) -> bool:
        """Whether it changed so often that it is not believed."""
        return len(self.changes) >= FLAPS

    def steady(self, now: datetime) -> bool:
        """Whether it has stayed, and stays, for long enough to be acted on."""
        return bool(self.what) and not self.flaps and now - self.since >= STEADY


def look(before: Seen | None, what: str, now: datetime) -> Seen | None:
    """What is known after another look; None where there is nothing to remember."""
    if before is None:
        return Seen(what=what, since=now) if what else None
    same = before.what == what
    since = before.since if same else now
    changes = before.changes if same else (*before.changes, now)
    changes = tuple(at for at in changes if now - at < WINDOW)
    if not what and not changes:
        return None
    return Seen(what=what, since=since, changes=changes)


def needs_seen(node: NodeFacts, found: NodeDrift | None) -> str:
    """All by which a node differs and that counts, on which boot; empty where it is as it should be, or is upgraded."""
    if node.taken:
        return ""
    reasons = sorted(one.reason.value for one in found.findings if one.counts) if found is not None else []
    return " ".join((node.boot_id, node.kernel, *reasons)) if reasons else ""


def labels_seen(node: NodeFacts, found: NodeDrift | None) -> str:
    """The labels that disagree with what is believed, and how; empty where none does."""
    if found is None or not any(one.reason in _LABELS for one in found.findings):
        return ""
    return f"{node.boot_id} {node.kernel_label} {node.driver_version_label}"
