"""What a stack says of drift in its conditions: what is done about it, labels that disagree, kernels without image."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import Driver, driver_had, driver_of, why_no_image
from upgrader.core.gpu_stack import unplanned_upgrades
from upgrader.core.gpu_stack.adoption import LABELS_DEPLOY
from upgrader.core.gpu_stack.debounce import Seen
from upgrader.core.gpu_stack.drift import would_lack
from upgrader.core.gpu_stack.proposals import Proposal
from upgrader.core.gpu_stack.unplanned_upgrades import Need
from upgrader.core.model.fleet import NodeFacts, Target
from upgrader.reconcile.gpu_stack.debounce_cache import Steady
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.conditions import Told

ON_DRIFT = "OnDrift"
LABELS_AGREE = "LabelsAgree"
ADOPTED = "Adopted"
NEXT_BOOT = "NextBootSupported"
FIXES = {
    LABELS_AGREE: "See who else writes these labels; nothing is done by them.",
    ADOPTED: "Hand the nodes over with `upgrader adopt`, or keep them out of the stack; see docs/migration.md.",
    NEXT_BOOT: "Do not reboot these nodes before there is an image, or take an alternative; see docs/drift.md.",
}
"""What a person does about a condition of these that is False."""
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What was decided about drift, and how steady it is; `goal` is what a node without a driver is given."""

    goal: Target
    proposal: Proposal | None
    steady: Steady

    def told(self, read: StackReading, now: datetime) -> Iterator[Told]:
        """The conditions; one that would say that all is well is there only where it once said otherwise."""
        if self.proposal is not None:
            done = "True" if self.proposal.done else "False"
            yield Told(ON_DRIFT, done, self.proposal.why.value, self.proposal.message)
        yield from self._labels(read, now)
        yield from _adopted(read)
        yield from _next_boot(read)

    def _labels(self, read: StackReading, now: datetime) -> Iterator[Told]:
        seen = [(node, self.steady.labels[node.uid]) for node in read.snapshot.nodes if node.uid in self.steady.labels]
        flapping = [node.name for node, one in seen if one.flaps]
        disagreeing = [node.name for node, one in seen if one.steady(now)]
        if flapping:
            said = f"{_nodes(flapping)}: labels change again and again; the kubelet is believed, and nothing is done"
            yield Told(LABELS_AGREE, "False", "Flapping", said)
        elif disagreeing:
            said = f"{_nodes(disagreeing)}: a label says otherwise than kubelet and driver image, which are believed"
            yield Told(LABELS_AGREE, "False", "Disagree", f"{said} (upgrader drift)")
        elif _undecided(one for _, one in seen):
            yield from _as_before(read, LABELS_AGREE)
        elif any(one.type == LABELS_AGREE for one in read.stack.status.conditions):
            yield Told(LABELS_AGREE, "True", "Agree", "no label disagrees")


def _adopted(read: StackReading) -> Iterator[Told]:
    refused = [node.name for node in read.snapshot.nodes if node.refused]
    if refused:
        said = (
            f"{_nodes(refused)}: another operator deploys its driver or device plugin there; nothing is done until "
            f"`upgrader adopt` hands them over, or {' and '.join(LABELS_DEPLOY)} are false"
        )
        yield Told(ADOPTED, "False", "NotAdopted", said)
    elif any(one.type == ADOPTED for one in read.stack.status.conditions):
        yield Told(ADOPTED, "True", "Adopted", "no other operator deploys a driver or device plugin on these nodes")


def _next_boot(read: StackReading) -> Iterator[Told]:
    """Warned of before they reboot: nothing is drained for it, and nobody is kept from rebooting."""
    catalogue, found = Catalogue(read.snapshot.images), defaultdict[tuple[Driver, str], list[str]](list)
    for node in read.snapshot.nodes:
        if not node.left_alone and (driver := would_lack(node, catalogue)) is not None:
            found[driver, node.pending_kernel].append(node.name)
    if found:
        said = " ".join(
            f"{_nodes(nodes)} would have no driver image after a reboot: "
            f"{why_no_image(read.snapshot.builds, driver, kernel)}"
            for (driver, kernel), nodes in sorted(found.items())
        )
        yield Told(NEXT_BOOT, "False", "NoImage", said)
    elif any(one.type == NEXT_BOOT for one in read.stack.status.conditions):
        yield Told(NEXT_BOOT, "True", "Supported", "every kernel that a next boot would take has an image")


def _undecided(seen: Iterable[Seen]) -> bool:
    """Whether something disagrees, but not for long enough to say so: what was said stands."""
    return any(one.what for one in seen)


def _as_before(read: StackReading, kind: str) -> Iterator[Told]:
    for one in read.stack.status.conditions:
        if one.type == kind:
            yield Told(one.type, one.status, one.reason, one.message)


def without_image(read: StackReading, goal: Target) -> str:
    """Nodes that wait for a driver because there is no image for their kernel, and what would help; empty: none."""
    catalogue = Catalogue(read.snapshot.images)
    lacking: dict[tuple[Driver, str], list[str]] = defaultdict(list)
    for node in read.snapshot.nodes:
        driver = _lacks(node, goal, catalogue)
        if driver is not None:
            lacking[driver, node.kernel].append(node.name)
    said = [
        f"{_nodes(nodes)}: {why_no_image(read.snapshot.builds, driver, kernel)}"
        for (driver, kernel), nodes in sorted(lacking.items())
    ]
    return " ".join(said)


def _lacks(node: NodeFacts, goal: Target, catalogue: Catalogue) -> Driver | None:
    """The driver that a node should have by itself and cannot."""
    if node.left_alone or node.claimed_by:
        return None
    own = catalogue.had(node) or catalogue.of(node)
    match unplanned_upgrades.need(node, catalogue):
        case Need.REPAIR if own is not None:
            driver = driver_had(own)
        case Need.INSTALL:
            driver = driver_of(goal)
        case _:
            return None
    return driver if catalogue.find(driver, node.kernel) is None else None


def _nodes(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return f"{len(names)} node(s) ({', '.join(names[:SHOWN])}{f' and {rest} more' if rest > 0 else ''})"
