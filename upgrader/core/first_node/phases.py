"""The phases of `upgrader first-node`, in the order in which a careful operator runs them."""

from enum import StrEnum

from msgspec import Struct

from upgrader.core.errors import ConfigurationError


class Effect(StrEnum):
    """Whether a phase changes the cluster or the node. The pods of read-only phases request nothing and only read."""

    READ_ONLY = "read-only"
    CHANGES = "changes"


class FirstNodePhase(Struct, frozen=True, kw_only=True):
    """One phase. `changes`: what it changes; `put_back`: how it is put back; `options`: those that it requires beside
    --go; `unavailable`: why it cannot run, empty if it can.
    """

    number: int
    title: str
    effect: Effect = Effect.READ_ONLY
    changes: str = ""
    put_back: str = ""
    options: str = ""
    unavailable: str = ""

    @property
    def folder(self) -> str:
        """Its folder in the report."""
        return f"{self.number:02}-{self.title.lower().replace(' ', '-')}"


_UPGRADE = "it is a step of phase 12, and there is no order for this step alone"

PHASES = (
    FirstNodePhase(number=0, title="Cluster and node"),
    FirstNodePhase(number=1, title="Survey"),
    FirstNodePhase(number=2, title="Baseline"),
    FirstNodePhase(number=3, title="Forecast"),
    FirstNodePhase(number=4, title="Unload", effect=Effect.CHANGES, unavailable=_UPGRADE),
    FirstNodePhase(number=5, title="Load", effect=Effect.CHANGES, unavailable=_UPGRADE),
    FirstNodePhase(number=6, title="Driver services", effect=Effect.CHANGES, unavailable=_UPGRADE),
    FirstNodePhase(
        number=7,
        title="Runtime",
        effect=Effect.CHANGES,
        changes="the node is cordoned, and two pods run one after the other, with one and with all GPUs",
        put_back="the pods are deleted, and the node is uncordoned unless it was cordoned before",
    ),
    FirstNodePhase(number=8, title="Plugin and kubelet", effect=Effect.CHANGES, unavailable=_UPGRADE),
    FirstNodePhase(
        number=9,
        title="Holders",
        effect=Effect.CHANGES,
        changes="the node is cordoned, and a privileged pod in the namespace default opens /dev/nvidia0",
        put_back="the pod is deleted, and the node is uncordoned unless it was cordoned before",
    ),
    FirstNodePhase(
        number=10,
        title="Crash",
        effect=Effect.CHANGES,
        unavailable="the pod of an upgrade cannot be ended at a chosen step of the kernel",
    ),
    FirstNodePhase(
        number=11,
        title="Reboot",
        effect=Effect.CHANGES,
        unavailable="a node reboots only into another kernel, or after a failed unload",
    ),
    FirstNodePhase(
        number=12,
        title="Upgrade and way back",
        effect=Effect.CHANGES,
        changes="the node is cordoned, the stack gets the changes of --set, and a plan upgrades the node",
        put_back="the stack gets its former spec, another plan leads the node back to it, and the cordon is lifted",
        options=" --set PATH=VALUE",
    ),
    FirstNodePhase(number=13, title="Comparison"),
)
"""By their numbers."""

FIRST = (0, 1, 2, 3)
"""Run without a request: they only read."""


def requested_phase(number: int) -> FirstNodePhase:
    """The phase of `--go`.

    Raises:
        ConfigurationError: it does not exist or cannot run.
    """
    if not 0 <= number < len(PHASES):
        raise ConfigurationError(f"there is no phase {number}", resolution=f"The last phase is {PHASES[-1].number}.")
    phase = PHASES[number]
    if phase.unavailable:
        raise ConfigurationError(f"phase {number} ({phase.title}) is not available: {phase.unavailable}")
    return phase


def next_phase(done: frozenset[int]) -> FirstNodePhase | None:
    """The first available phase that has not been completed; None after the last."""
    return next((phase for phase in PHASES if phase.number not in done and not phase.unavailable), None)
