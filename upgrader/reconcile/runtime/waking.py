"""The loops that an event on one of the operator's objects wakes."""

from typing import Any, Protocol

from upgrader.api.resources import CHECKPOINT_REQUESTS, DRIVER_IMAGES, GPU_STACKS, NODE_UPGRADES, UPGRADE_PLANS

SOON = 5.0
"""Seconds until a stack and other plans step after a change of a plan: its status changes with each of its nodes, and
each step of a stack reads its whole pool."""


class Waking(Protocol):
    """The receiver of wake-ups."""

    def wake(self, kind: str, name: str, within: float = 0.0) -> None:
        """Wake one object's loop, at most `within` seconds from now."""
        ...

    def wake_all(self, kind: str, within: float = 0.0) -> None:
        """Wake all existing loops of a kind."""
        ...


def passed_on(loops: Waking, kind: str, body: dict[str, Any]) -> None:
    """Wake the loops that depend on this object."""
    name = str(body["metadata"]["name"])
    match kind:
        case GPU_STACKS.kind:
            loops.wake(kind, name)
            loops.wake_all(UPGRADE_PLANS.kind)  # a plan waits for its revision, and ends when the stack changes
        case UPGRADE_PLANS.kind:
            loops.wake(kind, name)
            loops.wake(GPU_STACKS.kind, str(body["spec"]["stack"]), SOON)
            loops.wake_all(kind, SOON)  # the next plan of the same stack waits for this one
        case DRIVER_IMAGES.kind:
            loops.wake(kind, name)
            loops.wake_all(GPU_STACKS.kind)
            loops.wake_all(UPGRADE_PLANS.kind)
        case NODE_UPGRADES.kind | CHECKPOINT_REQUESTS.kind:
            _wake_who_ordered(loops, body["spec"])
        case _:
            raise AssertionError(f"{kind} is not watched")


def _wake_who_ordered(loops: Waking, spec: dict[str, Any]) -> None:
    if spec.get("plan"):
        loops.wake(UPGRADE_PLANS.kind, str(spec["plan"]))
    elif spec.get("stack"):
        loops.wake(GPU_STACKS.kind, str(spec["stack"]))
