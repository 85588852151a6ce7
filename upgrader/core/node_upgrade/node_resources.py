"""The allocatable resources of a node before and after its reboot into another kernel. Pure.

Only losses count. GPUs of the stack are judged by the validation, and not here.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.node_protocol.gpu_resources import is_gpu

MOST_RESOURCES = 64
"""Resources of a node that are recorded, by name."""

SHOWN_RESOURCES = 10
"""Lost resources that a sentence lists."""

LONGEST_RESOURCE = 317
"""Characters of the name of a resource in Kubernetes."""

_MEASURED = frozenset({"memory", "ephemeral-storage"})
_MEASURED_PERCENT = 99
"""Share of a resource in bytes that is enough: each kernel reserves another amount for itself."""


class NodeResources(Struct, frozen=True, kw_only=True):
    """The resources of a node whose upgrade reboots it into another kernel; the defaults are those of other upgrades.

    `allocatable`: now. `lost`: what is less than before the upgrade, as a part of a sentence; empty while it is
    reverted. After `settle_seconds` of the phase Loading a loss is a failure, or with `reports` a remark.
    """

    allocatable: dict[str, str] = {}
    lost: str = ""
    settle_seconds: int = 0
    reports: bool = False

    def settles_at(self, since: datetime, deadline: datetime | None) -> datetime:
        """When a loss is judged: before the deadline of the phase in any case."""
        settled = since + timedelta(seconds=self.settle_seconds)
        return settled if deadline is None else min(settled, deadline)


def select_resources(allocatable: Mapping[str, str | int], gpus: Iterable[str]) -> dict[str, str]:
    """The readable resources, without those that are GPUs by the names of a stack's revisions."""
    own = [name for name in gpus if name]
    others = (
        name
        for name in sorted(allocatable)
        if len(name) <= LONGEST_RESOURCE and not any(is_gpu(name, resource) for resource in own)
    )
    readable = [name for name in others if _parse_thousandths(allocatable[name]) is not None]
    return {name: str(allocatable[name]) for name in readable[:MOST_RESOURCES]}


def describe_lost_resources(before: Mapping[str, str], now: Mapping[str, str | int], changed: frozenset[str]) -> str:
    """What is less than before, each with both values; empty if nothing is. `changed`: the upgrade changes these."""
    lost = [
        f"{name}: {value} → {untrusted.cut_name(str(now.get(name, 0)))}"
        for name, value in sorted(before.items())
        if name not in changed and _is_less(name, value, now.get(name, 0))
    ]
    shown, more = ", ".join(lost[:SHOWN_RESOURCES]), len(lost) - SHOWN_RESOURCES
    return f"{shown}, and {more} more" if more > 0 else shown


def _is_less(name: str, before: str, now: str | int) -> bool:
    """Whether a resource is less; an unreadable one counts as none."""
    required, present = _parse_thousandths(before) or 0, _parse_thousandths(now) or 0
    return present * 100 < required * (_MEASURED_PERCENT if name in _MEASURED else 100)


def _parse_thousandths(value: str | int) -> int | None:
    """A thousand times a quantity, such as 3920 of `3920m`; None if it is unreadable."""
    whole = untrusted.parse_quantity(value)
    if whole is not None:
        return whole * 1000
    return untrusted.parse_whole(value.removesuffix("m")) if isinstance(value, str) and value.endswith("m") else None
