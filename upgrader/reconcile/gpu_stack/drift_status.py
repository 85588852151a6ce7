"""Conditions of a stack about drift: the response to it, labels that disagree, kernels without a driver image."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import DriverSelector, driver_had, driver_of, why_no_image
from upgrader.core.gpu_stack import unplanned_upgrades
from upgrader.core.gpu_stack.adoption import ADOPTION_ATTEMPTS, LABELS_DEPLOY
from upgrader.core.gpu_stack.debounce import Observation
from upgrader.core.gpu_stack.drift import would_lack
from upgrader.core.gpu_stack.proposals import Proposal
from upgrader.core.gpu_stack.unplanned_upgrades import NodeNeed
from upgrader.core.model.fleet import NodeFacts, Target
from upgrader.reconcile.gpu_stack.debounce_cache import Steady
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.conditions import ConditionContent

ON_DRIFT = "OnDrift"
LABELS_AGREE = "LabelsAgree"
ADOPTED = "Adopted"
NEXT_BOOT = "NextBootSupported"
ADOPTION_FAILED = "AdoptionFailed"
"""Reason of a take-over that waits for a user: its upgrades failed."""
FIXES = {
    LABELS_AGREE: "Find the other writer of these labels; the controller does not act on them.",
    ADOPTED: "Hand the nodes over with `upgrader adopt`, after failed upgrades again, or keep them out of the stack; "
    "see docs/guides/migrate-from-gpu-operator.md.",
    NEXT_BOOT: "Do not reboot these nodes before there is an image, or use an alternative; see docs/concepts/drift.md.",
}
"""What a user does if one of these conditions is False."""
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class DriftDecision:
    """The decision about drift, and how long it persists; `goal` is the target of a node without a driver.

    `failed_adoptions`: the failed upgrade by name of the node whose take-over waits for a user.
    """

    goal: Target
    proposal: Proposal | None
    steady: Steady
    failed_adoptions: Mapping[str, NodeUpgrade]

    def conditions(self, read: StackReading, now: datetime) -> Iterator[ConditionContent]:
        """The conditions; a positive one is added only if the stack already has that condition."""
        if self.proposal is not None:
            done = "True" if self.proposal.done else "False"
            yield ConditionContent(ON_DRIFT, done, self.proposal.why.value, self.proposal.message)
        yield from self._labels(read, now)
        yield from self._adopted(read)
        yield from _next_boot_condition(read)

    def _labels(self, read: StackReading, now: datetime) -> Iterator[ConditionContent]:
        seen = [(node, self.steady.labels[node.uid]) for node in read.snapshot.nodes if node.uid in self.steady.labels]
        flapping = [node.name for node, labels in seen if labels.is_flapping]
        disagreeing = [node.name for node, labels in seen if labels.is_steady(now)]
        if flapping:
            message = (
                f"{_node_text(flapping)}: labels change repeatedly; the kubelet's values are used, and no upgrade "
                "begins"
            )
            yield ConditionContent(LABELS_AGREE, "False", "Flapping", message)
        elif disagreeing:
            message = f"{_node_text(disagreeing)}: a label differs from kubelet and driver image, whose values are used"
            yield ConditionContent(LABELS_AGREE, "False", "Disagree", f"{message} (upgrader drift)")
        elif _has_undecided_labels(labels for _, labels in seen):
            yield from _repeat_condition(read, LABELS_AGREE)
        elif any(condition.type == LABELS_AGREE for condition in read.stack.status.conditions):
            yield ConditionContent(LABELS_AGREE, "True", "Agree", "no label disagrees")

    def _adopted(self, read: StackReading) -> Iterator[ConditionContent]:
        refused = [node.name for node in read.snapshot.nodes if node.refused]
        if self.failed_adoptions:
            message = (
                f"{_node_text(list(self.failed_adoptions))}: {ADOPTION_ATTEMPTS} upgrades that take it over from "
                "another operator failed; correct the cause (see the condition Installed), then run `upgrader adopt` "
                "again"
            )
            yield ConditionContent(ADOPTED, "False", ADOPTION_FAILED, message)
        elif refused:
            message = (
                f"{_node_text(refused)}: another operator deploys its driver or device plugin there; no upgrade begins "
                f"until `upgrader adopt` hands them over, or {' and '.join(LABELS_DEPLOY)} are false"
            )
            yield ConditionContent(ADOPTED, "False", "NotAdopted", message)
        elif any(condition.type == ADOPTED for condition in read.stack.status.conditions):
            yield ConditionContent(
                ADOPTED, "True", "Adopted", "no other operator deploys a driver or device plugin on these nodes"
            )


def _next_boot_condition(read: StackReading) -> Iterator[ConditionContent]:
    """A warning before a reboot into a kernel without an image: no node is drained, and no reboot is prevented."""
    catalogue, missing = Catalogue(read.snapshot.images), defaultdict[tuple[DriverSelector, str], list[str]](list)
    for node in read.snapshot.nodes:
        if not node.left_alone and (driver := would_lack(node, catalogue)) is not None:
            missing[driver, node.pending_kernel].append(node.name)
    if missing:
        message = " ".join(
            f"{_node_text(nodes)} would have no driver image after a reboot: "
            f"{why_no_image(read.snapshot.builds, driver, kernel)}"
            for (driver, kernel), nodes in sorted(missing.items())
        )
        yield ConditionContent(NEXT_BOOT, "False", "NoImage", message)
    elif any(condition.type == NEXT_BOOT for condition in read.stack.status.conditions):
        yield ConditionContent(NEXT_BOOT, "True", "Supported", "every kernel that a next boot would take has an image")


def _has_undecided_labels(seen: Iterable[Observation]) -> bool:
    """Whether labels disagree, but not long enough to change the condition."""
    return any(labels.what for labels in seen)


def _repeat_condition(read: StackReading, kind: str) -> Iterator[ConditionContent]:
    for condition in read.stack.status.conditions:
        if condition.type == kind:
            yield ConditionContent(condition.type, condition.status, condition.reason, condition.message)


def without_image(read: StackReading, goal: Target) -> str:
    """Nodes that wait for a driver because their kernel has no image, and the remedy; empty: none."""
    catalogue = Catalogue(read.snapshot.images)
    lacking: dict[tuple[DriverSelector, str], list[str]] = defaultdict(list)
    for node in read.snapshot.nodes:
        driver = _missing_driver(node, goal, catalogue)
        if driver is not None:
            lacking[driver, node.kernel].append(node.name)
    sentences = [
        f"{_node_text(nodes)}: {why_no_image(read.snapshot.builds, driver, kernel)}"
        for (driver, kernel), nodes in sorted(lacking.items())
    ]
    return " ".join(sentences)


def _missing_driver(node: NodeFacts, goal: Target, catalogue: Catalogue) -> DriverSelector | None:
    """The driver that the stack should install on a node, and for whose kernel there is no image."""
    if node.left_alone or node.claimed_by:
        return None
    own = catalogue.former_image(node) or catalogue.image_of(node)
    match unplanned_upgrades.find_need(node, catalogue):
        case NodeNeed.REPAIR if own is not None:
            driver = driver_had(own)
        case NodeNeed.INSTALL:
            driver = driver_of(goal)
        case _:
            return None
    return driver if catalogue.find_image(driver, node.kernel) is None else None


def _node_text(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return f"{len(names)} node(s) ({', '.join(names[:SHOWN])}{f' and {rest} more' if rest > 0 else ''})"
