"""A gang whose owner has no template that we may change: where it may run is said before it is restarted."""

import pytest

from tests.support import manifests as m
from tests.support.owners import owner
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.errors import ConflictError
from upgrader.core.model.phases import NodePhase
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.suspend_patches import is_off, stop_patch
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.live_owners import resource_of
from upgrader.reconcile.checkpoint_request.request_reading import read_request
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig

ROWS = {row.kind: row for row in OWNERS if row.group != "batch.volcano.sh"}
BY_POLICY = ("TrainJob", "JobSet")
PLACES = (Placement(left_behind=("r2", "r1"), group="c-1"), Placement(left_behind=("r1",), settled=True))


class Stopped:
    """A gang that a plan has stopped, and that is to be restarted now."""

    def __init__(self, kind: str) -> None:
        self.row, self.rig = ROWS[kind], Rig()
        self.resource = resource_of(self.row, self.row.api_version)
        made = self.rig.cluster.store.add(self.resource, owner(self.row)).value
        self.rig.cluster.store.change(self.resource, "train", stop_patch(self.row, made, "up", "gang-1"), "default")
        self.uid = made["metadata"]["uid"]
        self.record("gang-1")

    def record(self, name: str, **spec: object) -> None:
        whole = m.checkpoint_request(name)
        ref = {"kind": self.row.kind, "apiVersion": self.row.api_version, "name": "train", "uid": self.uid}
        spec = whole["spec"] | {"owner": ref, "method": "api"} | spec
        status = {"phase": "Restarting", "acknowledgedStep": 7, "deadline": "2027-01-01T00:00:00Z"}
        self.rig.cluster.store.add(CHECKPOINT_REQUESTS, whole | {"spec": spec, "status": status})

    def placement(self, name: str = "gang-1") -> Object | None:
        return self.rig.cluster.store.find(CHECKPOINT_REQUESTS, name, "default")["spec"].get("placement")

    @property
    def off(self) -> bool:
        return is_off(self.row, self.rig.cluster.store.find(self.resource, "train", "default"))

    async def step(self, place: Placement = PLACES[0]) -> None:
        context = self.rig.context
        request = await context.cluster.get(CHECKPOINT_REQUESTS, "gang-1", "default")
        live = await read_request(context, request, "nvidia.com/gpu")
        group = GroupOfGang(nodes=(NodePhase.SUCCEEDED,))
        await request_reconciler.advance_request(context, live, group, where=lambda: place, ask_until=None)


@pytest.mark.parametrize("kind", BY_POLICY)
async def test_it_is_said_in_one_step_and_the_gang_is_restarted_in_the_next(kind: str) -> None:
    gang = Stopped(kind)
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step()
    assert gang.off
    assert gang.placement() == {
        "leftBehind": ["r1", "r2"],
        "settled": False,
        "group": "c-1",
        "podLabels": {"jobset.sigs.k8s.io/jobset-name": "train"},
    }
    await gang.step()
    assert not gang.off


async def test_what_changes_afterwards_is_written_and_keeps_nobody_stopped() -> None:
    gang = Stopped("JobSet")
    with pytest.raises(ConflictError, match="the next step restarts the gang"):
        await gang.step(PLACES[0])
    with pytest.raises(ConflictError, match="changed since it was read"):  # the record of it is the next step's
        await gang.step(PLACES[1])
    assert gang.placement() == {
        "leftBehind": ["r1"],
        "settled": True,
        "group": "",
        "podLabels": {"jobset.sigs.k8s.io/jobset-name": "train"},
    }
    assert not gang.off


async def test_what_an_earlier_restart_of_the_gang_said_does_not_hold_any_more() -> None:
    gang = Stopped("JobSet")
    gang.record("gang-0", placement={"leftBehind": ["new"]})
    gang.record("stranger", placement={"leftBehind": ["new"]}, owner={"kind": "JobSet", "name": "b", "uid": "b"})
    with pytest.raises(ConflictError):
        await gang.step()
    assert (gang.placement("gang-0"), bool(gang.placement("stranger"))) == (None, True)


@pytest.mark.parametrize("kind", sorted(ROWS.keys() - {*BY_POLICY, "Workload"}))
async def test_where_a_template_can_be_changed_nothing_is_said(kind: str) -> None:
    gang = Stopped(kind)
    await gang.step()
    assert (gang.off, gang.placement()) == (False, None)
