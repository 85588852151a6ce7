"""Additional rollouts of a run: in a second pool, by another plan of the same stack, and with deleted stacks."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct

from upgrader.api.resources import GPU_STACKS, UPGRADE_PLANS
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.simulated.cluster.rig import STACK, Rig

PLAN = "up"
HOME = "a"
"""The pool of every node in most runs."""
OTHER_POOL, OTHER_STACK = "c", "pool-c"
OTHER_PLAN, NEXT_PLAN = "up-c", "up-2"
PLANS = (PLAN, OTHER_PLAN, NEXT_PLAN)
PART = 0.07
"""Part of the runs with each of these rollouts."""


class NextRevision(StrEnum):
    """The target of another plan of the same stack."""

    SAME = "the same revision"
    NEWER = "a newer revision"
    BACK = "the revision before"


class Rollouts(Struct, frozen=True, kw_only=True):
    """Additional rollouts; times are seconds from the start of the first plan. None: it does not happen."""

    second_pool: int | None = None
    """When the plan of the second pool is created; every second node belongs to that pool."""
    next_plan: tuple[int, NextRevision] | None = None
    stack_goes: tuple[int, int | None] | None = None
    """When the first stack is deleted, and how long after that it is created again."""

    def pool_of(self, node: str) -> str:
        """The pool of a node, by its number."""
        return OTHER_POOL if self.second_pool is not None and int(node.rpartition("-")[2]) % 2 else HOME

    def __str__(self) -> str:
        """A summary; empty in most runs."""
        second = [] if self.second_pool is None else [f"plan {OTHER_PLAN} of a second pool at {self.second_pool} s"]
        following = [] if self.next_plan is None else [f"a plan to {self.next_plan[1]} at {self.next_plan[0]} s"]
        gone = [] if self.stack_goes is None else [f"the stack is deleted at {self.stack_goes[0]} s"]
        if self.stack_goes is not None and self.stack_goes[1] is not None:
            gone.append(f"and created again {self.stack_goes[1]} s later")
        return "".join(f"; {part}" for part in (*second, *following, *gone))


def draw_rollouts(draws: Draws, nodes: int) -> Rollouts:
    """Random additional rollouts of a run."""
    second, following, gone = (draws.stream_for(subject) for subject in ("two pools", "further plan", "deleted stack"))
    return Rollouts(
        second_pool=second.draw_choice([0, 0, 20, 120]) if nodes > 1 and second.is_hit(PART) else None,
        next_plan=(following.draw_number(0, 400), following.draw_choice(list(NextRevision)))
        if following.is_hit(PART)
        else None,
        stack_goes=(gone.draw_number(1, 400), gone.draw_choice([None, 5, 60, 400])) if gone.is_hit(PART) else None,
    )


class ApplySchedule:
    """Applies the stacks and plans of users, each at its time."""

    def __init__(self, rig: Rig, rollouts: Rollouts) -> None:
        self._rig, self._rollouts = rig, rollouts
        self._plan: Mapping[str, Any] = {}
        self._target_spec: Mapping[str, Any] = {}
        self._store, self._clock = rig.cluster.store, rig.cluster.clock
        self._pending_count = 0
        """The number of objects that are not applied yet."""

    def is_complete(self) -> bool:
        """Whether all objects of this run are applied."""
        return self._pending_count == 0

    def apply_first_stacks(self) -> None:
        """Apply the stacks with the first driver."""
        self._rig.apply_stack(self._rig.make_spec("1.0"))
        if self._rollouts.second_pool is not None:
            self._rig.apply_stack(_other_pool_spec(self._rig.make_spec("1.0")), OTHER_STACK)

    def start_rollouts(self, plan: Mapping[str, Any], target_spec: Mapping[str, Any]) -> None:
        """Apply the first plan now, and schedule the other objects."""
        self._plan, self._target_spec = plan, target_spec
        self._apply_plan(PLAN, self._rig.apply_stack(dict(self._target_spec)))
        if self._rollouts.second_pool is not None:
            self._schedule_action(self._rollouts.second_pool, self._apply_other_plan)
        if self._rollouts.next_plan is not None:
            seconds, which = self._rollouts.next_plan
            self._schedule_action(seconds, partial(self._apply_next_plan, which))
        if self._rollouts.stack_goes is not None:
            seconds, back = self._rollouts.stack_goes
            self._schedule_action(seconds, self._delete_stack)
            if back is not None:
                self._schedule_action(seconds + back, self._recreate_stack)

    def _schedule_action(self, seconds: int, act: Callable[[], None]) -> None:
        self._pending_count += 1
        self._clock.later(seconds, partial(self._run_action, act))

    def _run_action(self, act: Callable[[], None]) -> None:
        self._pending_count -= 1
        act()

    def _apply_plan(self, name: str, revision: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        if self._store.find_stored(UPGRADE_PLANS, name) is None:
            self._rig.apply_plan(name, revision, **{**self._plan, **spec})

    def _apply_other_plan(self) -> None:
        revision = self._rig.apply_stack(_other_pool_spec(self._target_spec), OTHER_STACK)
        self._apply_plan(OTHER_PLAN, revision, stack=OTHER_STACK)

    def _apply_next_plan(self, which: NextRevision) -> None:
        if self._store.find_stored(GPU_STACKS, STACK) is None:
            return
        spec = dict(self._target_spec)
        if which is NextRevision.NEWER:
            spec["driver"] = spec["driver"] | {"version": "3.0"}
        elif which is NextRevision.BACK:
            spec = self._rig.make_spec("1.0")
        self._apply_plan(NEXT_PLAN, self._rig.apply_stack(spec))

    def _delete_stack(self) -> None:
        if self._store.find_stored(GPU_STACKS, STACK) is not None:
            self._store.mark_deleted(GPU_STACKS, STACK)

    def _recreate_stack(self) -> None:
        if self._store.find_stored(GPU_STACKS, STACK) is None:
            self._rig.apply_stack(dict(self._target_spec))


def _other_pool_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "nodeSelector": {"pool": OTHER_POOL}}
