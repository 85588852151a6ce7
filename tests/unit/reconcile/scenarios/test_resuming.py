"""Restarts that are refused, or ordered and lost: what we stopped does not stay stopped."""

from datetime import timedelta

import pytest

from tests.support import manifests as m
from tests.support.owners import owner
from upgrader.api.resources import CHECKPOINT_REQUESTS, COMMANDS
from upgrader.core import timing
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.errors import ClusterError, ConfigurationError, ConflictError, UnreachableError, UpgraderError
from upgrader.core.model.phases import NodePhase
from upgrader.core.workloads.owner_kinds import OWNERS, OwnerKind
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.suspend_patches import STOPPED, is_off, stop_patch, volcano_command
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.live_owners import resource_of
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader_dev.simulated.cluster.rig import Rig

JOB, VOLCANO = (
    next(row for row in OWNERS if (row.kind, row.group) == ("Job", one)) for one in ("batch", "batch.volcano.sh")
)
PLACE = Placement(left_behind=("r1",), group="c-1")


class Restarting:
    """A gang that we stopped and are restarting; `seconds` until the deadline of that."""

    def __init__(self, row: OwnerKind, *, seconds: int = 600, undone: bool = False) -> None:
        self.row, self.rig, self.resource = row, Rig(), resource_of(row, row.api_version)
        self.rig.cluster.git_version = "v1.36.0"
        store = self.rig.cluster.store
        made = store.add(self.resource, owner(row)).value
        store.change(self.resource, "train", stop_patch(row, made, "up", "gang-1"), "default")
        ref = {"kind": row.kind, "apiVersion": row.api_version, "name": "train", "uid": made["metadata"]["uid"]}
        whole = m.checkpoint_request("gang-1")
        now = self.rig.context.clock.now()
        deadline = timing.format_time(now + timedelta(seconds=seconds))
        since = {"restartedAt": timing.format_time(now)} if undone else {}
        store.add(
            CHECKPOINT_REQUESTS,
            whole
            | {
                "spec": whole["spec"] | {"owner": ref, "method": "api"},
                "status": {"phase": "Restarting", "acknowledgedStep": 7, "deadline": deadline, **since},
            },
        )

    @property
    def owner(self):
        return self.rig.cluster.store.find(self.resource, "train", "default")

    @property
    def recorded(self) -> bool:
        return STOPPED in self.owner["metadata"].get("annotations", {})

    @property
    def orders(self) -> list[str]:
        return [one["action"] for one in self.rig.cluster.store.copy_all(COMMANDS)]

    def ordered_off(self) -> None:
        """The order to go off lies there, and Volcano has not taken it yet."""
        self.rig.cluster.store.add(COMMANDS, volcano_command(self.row, self.owner, "gang-1", on=False))

    def said(self, phase: str) -> None:
        """What Volcano writes when it has seen an order, which it takes away."""
        for one in self.rig.cluster.store.copy_all(COMMANDS):
            self.rig.cluster.store.remove(COMMANDS, one["metadata"]["name"], "default")
        self.rig.cluster.store.change(self.resource, "train", {"status": {"state": {"phase": phase}}}, "default")

    async def step(self) -> None:
        context = self.rig.context
        request = await context.cluster.get(CHECKPOINT_REQUESTS, "gang-1", "default")
        live = await read_request(context, request, "nvidia.com/gpu")
        group = GroupOfGang(nodes=(NodePhase.SUCCEEDED,))
        await request_reconciler.advance_request(context, live, group, where=lambda: PLACE, ask_until=None)


async def test_an_order_to_go_on_that_is_lost_is_given_again_and_the_record_stays_until_it_is_taken() -> None:
    gang = Restarting(VOLCANO)
    gang.said("Aborted")
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step()
    await gang.step()
    assert (gang.orders, gang.recorded) == (["ResumeJob"], True)
    gang.said("Aborted")  # it took the order away and died before it acted on it
    await gang.step()
    assert (gang.orders, gang.recorded) == (["ResumeJob"], True)
    gang.said("Running")
    await gang.step()
    assert not gang.recorded


async def test_after_the_deadline_the_record_goes_with_a_last_order() -> None:
    gang = Restarting(VOLCANO, seconds=0)
    gang.said("Aborted")
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step()
    await gang.step()
    assert (gang.orders, gang.recorded) == (["ResumeJob"], False)


async def test_a_stop_that_is_undone_takes_its_order_back_before_anything_else() -> None:
    """Volcano may act on two orders in either order: with both there, what trains on might be stopped by nobody."""
    gang = Restarting(VOLCANO, undone=True)
    gang.ordered_off()
    await gang.step()
    assert (gang.orders, gang.recorded) == ([], True)
    gang.rig.cluster.clock.advance(9)
    await gang.step()
    assert (gang.orders, gang.recorded) == ([], True)
    gang.rig.cluster.clock.advance(1)
    await gang.step()
    assert (gang.orders, gang.recorded) == (["ResumeJob"], False)


async def test_an_order_that_was_taken_at_the_very_moment_of_its_recall_is_made_good() -> None:
    gang = Restarting(VOLCANO, undone=True)
    await gang.step()
    gang.said("Aborting")
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step()
    await gang.step()
    assert (gang.orders, gang.recorded) == (["ResumeJob"], True)
    gang.said("Running")
    gang.rig.cluster.clock.advance(10)
    await gang.step()
    assert not gang.recorded


async def test_an_order_to_go_off_that_was_given_twice_does_not_follow_that_to_go_on() -> None:
    gang = Restarting(VOLCANO)
    gang.said("Aborted")
    gang.ordered_off()
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step()
    await gang.step()
    assert gang.orders == ["ResumeJob"]


async def test_the_order_of_another_request_is_left_alone() -> None:
    gang = Restarting(VOLCANO, undone=True)
    gang.rig.cluster.store.add(COMMANDS, volcano_command(gang.row, gang.owner, "gang-2", on=False))
    await gang.step()
    assert gang.orders == ["AbortJob"]


def templates_are_refused(gang: Restarting, error: UpgraderError) -> None:
    merge = gang.rig.cluster.merge

    async def refused(kind, meta, patch, subresource=""):
        if "template" in patch.get("spec", {}):
            raise error
        return await merge(kind, meta, patch, subresource)

    gang.rig.cluster.merge = refused


@pytest.mark.parametrize("error", [ConfigurationError("422"), ClusterError("a webhook does not allow this")])
async def test_where_steering_is_refused_until_the_deadline_it_is_restarted_without(error: UpgraderError) -> None:
    gang = Restarting(JOB)
    templates_are_refused(gang, error)
    with pytest.raises(type(error)):
        await gang.step()
    assert is_off(JOB, gang.owner)
    gang = Restarting(JOB, seconds=0)
    templates_are_refused(gang, error)
    await gang.step()
    assert (is_off(JOB, gang.owner), gang.recorded) == (False, False)


async def test_an_api_server_that_is_away_is_no_refusal() -> None:
    gang = Restarting(JOB, seconds=0)
    templates_are_refused(gang, UnreachableError("no answer"))
    with pytest.raises(UnreachableError):
        await gang.step()
    assert is_off(JOB, gang.owner)
