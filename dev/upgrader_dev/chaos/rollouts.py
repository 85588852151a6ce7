"""What else is rolled out in a run: in a second pool, by another plan of the same stack; and stacks that go."""

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
"""Of the runs that have each of these."""


class Next(StrEnum):
    """Another plan of the same stack."""

    SAME = "the same revision"
    NEWER = "a newer revision"
    BACK = "the revision before"


class Rollouts(Struct, frozen=True, kw_only=True):
    """What a run has besides; times are seconds from the start of its first plan. None: it does not happen."""

    second_pool: int | None = None
    """When the plan of the second pool is made; every second node is of that pool."""
    next_plan: tuple[int, Next] | None = None
    stack_goes: tuple[int, int | None] | None = None
    """When the first stack is deleted, and how long after that it is made again."""

    def home(self, node: str) -> str:
        """The pool of a node, by its number."""
        return OTHER_POOL if self.second_pool is not None and int(node.rpartition("-")[2]) % 2 else HOME

    def __str__(self) -> str:
        """In words, for people; empty in most runs."""
        second = [] if self.second_pool is None else [f"plan {OTHER_PLAN} of a second pool at {self.second_pool} s"]
        following = [] if self.next_plan is None else [f"a plan to {self.next_plan[1]} at {self.next_plan[0]} s"]
        gone = [] if self.stack_goes is None else [f"the stack is deleted at {self.stack_goes[0]} s"]
        if self.stack_goes is not None and self.stack_goes[1] is not None:
            gone.append(f"and made again {self.stack_goes[1]} s later")
        return "".join(f"; {each}" for each in (*second, *following, *gone))


def rollouts_of(draws: Draws, nodes: int) -> Rollouts:
    """What else a run has, by chance."""
    second, following, gone = (draws.of(each) for each in ("two pools", "further plan", "deleted stack"))
    return Rollouts(
        second_pool=second.among([0, 0, 20, 120]) if nodes > 1 and second.happens(PART) else None,
        next_plan=(following.number(0, 400), following.among(list(Next))) if following.happens(PART) else None,
        stack_goes=(gone.number(1, 400), gone.among([None, 5, 60, 400])) if gone.happens(PART) else None,
    )


class Orders:
    """What people apply: the stacks and their plans, each at its time."""

    def __init__(self, rig: Rig, rollouts: Rollouts) -> None:
        self._rig, self._rollouts = rig, rollouts
        self._plan: Mapping[str, Any] = {}
        self._wanted: Mapping[str, Any] = {}
        self._store, self._clock = rig.cluster.store, rig.cluster.clock
        self._open = 0
        """How many orders are still to be given."""

    def given(self) -> bool:
        """Whether everything is applied that people want in this run."""
        return self._open == 0

    def install(self) -> None:
        """The stacks with the first driver."""
        self._rig.stack(self._rig.spec("1.0"))
        if self._rollouts.second_pool is not None:
            self._rig.stack(_of_the_other_pool(self._rig.spec("1.0")), OTHER_STACK)

    def begin(self, plan: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """The first plan now, to what is wanted of its stack; everything else later."""
        self._plan, self._wanted = plan, wanted
        self._order(PLAN, self._rig.stack(dict(self._wanted)))
        if self._rollouts.second_pool is not None:
            self._at(self._rollouts.second_pool, self._order_other)
        if self._rollouts.next_plan is not None:
            seconds, which = self._rollouts.next_plan
            self._at(seconds, partial(self._order_next, which))
        if self._rollouts.stack_goes is not None:
            seconds, back = self._rollouts.stack_goes
            self._at(seconds, self._delete)
            if back is not None:
                self._at(seconds + back, self._make_again)

    def _at(self, seconds: int, act: Callable[[], None]) -> None:
        self._open += 1
        self._clock.later(seconds, partial(self._give, act))

    def _give(self, act: Callable[[], None]) -> None:
        self._open -= 1
        act()

    def _order(self, name: str, revision: str, **spec: Any) -> None:  # noqa: ANN401 - JSON
        if self._store.stored(UPGRADE_PLANS, name) is None:
            self._rig.plan(name, revision, **{**self._plan, **spec})

    def _order_other(self) -> None:
        revision = self._rig.stack(_of_the_other_pool(self._wanted), OTHER_STACK)
        self._order(OTHER_PLAN, revision, stack=OTHER_STACK)

    def _order_next(self, which: Next) -> None:
        if self._store.stored(GPU_STACKS, STACK) is None:
            return
        spec = dict(self._wanted)
        if which is Next.NEWER:
            spec["driver"] = spec["driver"] | {"version": "3.0"}
        elif which is Next.BACK:
            spec = self._rig.spec("1.0")
        self._order(NEXT_PLAN, self._rig.stack(spec))

    def _delete(self) -> None:
        if self._store.stored(GPU_STACKS, STACK) is not None:
            self._store.mark_deleted(GPU_STACKS, STACK)

    def _make_again(self) -> None:
        if self._store.stored(GPU_STACKS, STACK) is None:
            self._rig.stack(dict(self._wanted))


def _of_the_other_pool(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "nodeSelector": {"pool": OTHER_POOL}}
