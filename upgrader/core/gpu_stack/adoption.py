"""Adoption of nodes on which another operator deploys a driver or a device plugin: refused until a user agrees. Pure.

NVIDIA's GPU Operator controls with labels on a Node what it deploys there (`true`, `pre-installed` for a driver of the
host, `paused-for-driver-upgrade`; `false` or no label: nothing). A node upgrade takes over the labels of the operands
that it replaces. The labels of its other operands, whose processes hold the driver, are paused while the operands of
the node are off, as NVIDIA's k8s-driver-manager does for an upgrade of its own driver.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core import untrusted

LABELS_DEPLOY = ("nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.device-plugin")
"""Labels of the operands that upgrades replace."""
OFF = "false"

# The names and the value are those of github.com/NVIDIA/k8s-driver-manager, cmd/driver-manager/main.go; only
# node-status-exporter is of github.com/NVIDIA/gpu-operator, controllers/state_manager.go.
LABELS_PAUSED = tuple(
    f"nvidia.com/gpu.deploy.{name}"
    for name in (
        "client",
        "container-toolkit",
        "dcgm",
        "dcgm-dra",
        "dcgm-exporter",
        "dcgm-exporter-dra",
        "dra-driver",
        "dra-validator",
        "gpu-feature-discovery",
        "mig-manager",
        "node-status-exporter",
        "nvsm",
        "operator-validator",
        "sandbox-device-plugin",
        "sandbox-validator",
        "vgpu-device-manager",
    )
)
"""Labels of the other operands: paused while the driver is unloaded."""
PAUSED = "paused-for-driver-upgrade"
LONGEST_LABEL = 63
"""Characters of a label value."""

ADOPTION_ATTEMPTS = 2
"""Failed upgrades of a node that is handed over, after which it waits for a user: each ends its operands."""


class AdoptionConsent(Struct, frozen=True, kw_only=True):
    """The user who handed a node over, and the time (RFC 3339)."""

    by: str
    at: str


def foreign_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The labels by which another operator deploys operands on a node that upgrades would replace."""
    return tuple(key for key in LABELS_DEPLOY if _is_deployed(labels, key))


def unpaused_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The labels by which another operator deploys operands that may hold the driver."""
    return tuple(key for key in LABELS_PAUSED if _is_deployed(labels, key) and not is_paused(labels[key]))


def _is_deployed(labels: Mapping[str, str], key: str) -> bool:
    return labels.get(key, OFF) not in {OFF, ""}


def is_paused(value: str) -> bool:
    """Whether a label pauses its operand."""
    return value.endswith(PAUSED)


def paused_value(before: str) -> str:
    """The value of a label that pauses its operand; it contains the value before, except `true` and a long one."""
    joined = f"{before}_{PAUSED}"
    return PAUSED if before == "true" or len(joined) > LONGEST_LABEL else joined


def taken_over(labels: Mapping[str, str], kept: str | None) -> tuple[dict[str, str], str] | None:
    """Labels to write, and the record on the Node of their values before; None if there is none to write.

    `kept` is the record of an earlier take-over: it has precedence over values of LABELS_DEPLOY that were set since.
    """
    keys, paused = foreign_labels(labels), {key: labels[key] for key in unpaused_labels(labels)}
    if not keys and not paused:
        return None
    before = {**{key: labels[key] for key in keys}, **(read_before(kept) or {}), **paused}
    changes = dict.fromkeys(keys, OFF) | {key: paused_value(value) for key, value in paused.items()}
    return changes, msgspec.json.encode(before).decode()


def resumed_labels(labels: Mapping[str, str], kept: str | None) -> tuple[dict[str, str], str | None]:
    """The values of paused labels before, of those that still have the value that paused them, and the record of the
    labels that stay taken over; None if none does.
    """
    before = read_before(kept) or {}
    if not any(key in LABELS_PAUSED for key in before):
        return {}, kept
    values = {key: value for key, value in handed_back(labels, kept).items() if key in LABELS_PAUSED}
    left = {key: value for key, value in before.items() if key not in LABELS_PAUSED}
    return values, msgspec.json.encode(left).decode() if left else None


def handed_back(labels: Mapping[str, str], kept: str | None) -> dict[str, str]:
    """The values of labels before a take-over, of those that still have the value that it wrote."""
    before = read_before(kept) or {}
    return {
        key: value
        for key, value in before.items()
        if (key in LABELS_DEPLOY and labels.get(key) == OFF)
        or (key in LABELS_PAUSED and labels.get(key) == paused_value(value))
    }


def still_over(labels: Mapping[str, str], kept: str | None) -> str | None:
    """The record of a take-over, without labels that others have set since; None if none is left."""
    before = handed_back(labels, kept)
    return msgspec.json.encode(before).decode() if before else None


def read_before(kept: str | None) -> dict[str, str] | None:
    """The record of an earlier take-over; None if there was none, or it is unreadable."""
    return untrusted.read_json(kept, dict[str, str])


def consent_time(consent: str | None) -> str:
    """When a user handed a node over, as the annotation states it; empty if it is unreadable, or there is none."""
    read = untrusted.read_json(consent, AdoptionConsent)
    return read.at if read is not None else ""
