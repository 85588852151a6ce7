"""Nodes on which another operator deploys a driver or a device plugin: refused until a person hands them over. Pure.

NVIDIA's GPU Operator says with labels on a Node what it deploys there (`true`, `pre-installed` for a driver of the
host, `paused-for-driver-upgrade`; `false` or no label: nothing). A node upgrade takes over the labels of what it swaps.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core import untrusted

LABELS_DEPLOY = ("nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.device-plugin")
"""What we swap; its other operands may stay as they are."""
OFF = "false"


class Consent(Struct, frozen=True, kw_only=True):
    """Who handed a node over, and when (RFC 3339)."""

    by: str
    at: str


def theirs(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The labels by which another operator deploys on a node what we would."""
    return tuple(key for key in LABELS_DEPLOY if labels.get(key, OFF) not in {OFF, ""})


def taken_over(labels: Mapping[str, str], kept: str | None) -> tuple[dict[str, str], str] | None:
    """Labels to write, and what they were before as it is kept on the Node; None where nothing is theirs any more.

    `kept` is what was found by an earlier take-over: it stands, whatever was set since.
    """
    found = theirs(labels)
    if not found:
        return None
    before = {**{key: labels[key] for key in found}, **(read_before(kept) or {})}
    return dict.fromkeys(found, OFF), msgspec.json.encode(before).decode()


def handed_back(labels: Mapping[str, str], kept: str | None) -> dict[str, str]:
    """The labels as they were before a take-over, as far as they are still as we set them."""
    before = read_before(kept) or {}
    return {key: value for key, value in before.items() if key in LABELS_DEPLOY and labels.get(key) == OFF}


def still_over(labels: Mapping[str, str], kept: str | None) -> str | None:
    """What is kept of a take-over, without labels that somebody has set since; None where nothing is left of it."""
    before = handed_back(labels, kept)
    return msgspec.json.encode(before).decode() if before else None


def read_before(kept: str | None) -> dict[str, str] | None:
    """What an earlier take-over found; None where there was none, or nobody can read it."""
    return untrusted.document(kept, dict[str, str])
