"""Stacks that were deleted while nobody led are found by their operands."""

import pytest

from tests.support.pools import pool
from upgrader.api.resources import GPU_STACKS
from upgrader.controller import run
from upgrader.core.errors import UnreachableError
from upgrader_dev.simulated.cluster.rig import STACK, Rig


class Loops:
    def __init__(self):
        self.woken = []

    def wake(self, kind, name, within=0.0):
        self.woken.append((kind, name))

    def wake_all(self, kind, within=0.0):
        raise AssertionError(f"all {kind} are woken by the watches")


@pytest.mark.parametrize("unreachable", [0, 2])
async def test_a_stack_that_left_operands_behind_is_woken(monkeypatch, unreachable):
    rig, loops, failures = Rig(), Loops(), ["away"] * unreachable
    await pool(rig)
    rig.cluster.store.remove(GPU_STACKS, STACK)
    monkeypatch.setattr(run, "RETRY_SECONDS", 0)
    context = rig.context
    listed = context.cluster.list

    async def flaky(*arguments, **options):
        if failures:
            raise UnreachableError(failures.pop())
        return await listed(*arguments, **options)

    monkeypatch.setattr(context.cluster, "list", flaky)
    await run.wake_remaining(context, loops)
    assert loops.woken == [("Cluster", "without-stacks"), ("GpuStack", STACK)]
    assert failures == []
