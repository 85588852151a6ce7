"""Adoption of nodes on which another operator deploys a driver or a device plugin: refused until a user agrees. Pure.

NVIDIA's GPU Operator controls with labels on a Node what it deploys there (`true`, `pre-installed` for a driver of the
host, `paused-for-driver-upgrade`; `false` or no label: nothing). A node upgrade takes over the labels of the operands
that it replaces.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core import untrusted

LABELS_DEPLOY = ("nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.device-plugin")
"""Labels of the operands that upgrades replace; the other operands may stay."""
OFF = "false"


class AdoptionConsent(Struct, frozen=True, kw_only=True):
    """The user who handed a node over, and the time (RFC 3339)."""

    by: str
    at: str


def foreign_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The labels by which another operator deploys operands on a node that upgrades would replace."""
    return tuple(key for key in LABELS_DEPLOY if labels.get(key, OFF) not in {OFF, ""})


def taken_over(labels: Mapping[str, str], kept: str | None) -> tuple[dict[str, str], str] | None:
    """Labels to write, and the record on the Node of their values before; None if no such label is left.

    `kept` is the record of an earlier take-over: it has precedence over values that were set since.
    """
    keys = foreign_labels(labels)
    if not keys:
        return None
    before = {**{key: labels[key] for key in keys}, **(read_before(kept) or {})}
    return dict.fromkeys(keys, OFF), msgspec.json.encode(before).decode()


def handed_back(labels: Mapping[str, str], kept: str | None) -> dict[str, str]:
    """The values of labels before a take-over, of those that still have the value that it wrote."""
    before = read_before(kept) or {}
    return {key: value for key, value in before.items() if key in LABELS_DEPLOY and labels.get(key) == OFF}


def still_over(labels: Mapping[str, str], kept: str | None) -> str | None:
    """The record of a take-over, without labels that others have set since; None if none is left."""
    before = handed_back(labels, kept)
    return msgspec.json.encode(before).decode() if before else None


def read_before(kept: str | None) -> dict[str, str] | None:
    """The record of an earlier take-over; None if there was none, or it is unreadable."""
    return untrusted.read_json(kept, dict[str, str])
