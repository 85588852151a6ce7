"""What only waits costs no request, and what watches show wrongly or late neither does harm nor holds up for long."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from upgrader.api.resources import PODS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.reconcile.runtime.looks import ANEW
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.rig import Rig, start_training

P = NodePhase


class Counting(FakeCluster):
    """Counts lists of the pods of a node: each look of a node upgrade that reads anew makes one."""

    def __init__(self):
        super().__init__()
        self.looks = 0

    async def list(self, kind, namespace="", *, labels="", fields=""):
        self.looks += kind == PODS and bool(fields)
        return await super().list(kind, namespace, labels=labels, fields=fields)


class Watches:
    """Shows everything as it is, or as it was shown before it got stuck."""

    def __init__(self, cluster):
        self.cluster, self.stuck, self.shown = cluster, False, {}

    async def get(self, kind, name, namespace=""):
        return await self._show(
            kind, ("get", kind.kind, name, namespace), self.cluster.store.find_stored, name, namespace
        )

    async def list(self, kind, namespace="", *, labels="", fields=""):
        return await self._show(
            kind, ("list", kind.kind, namespace, labels, fields), self.cluster.store.decode, namespace, labels, fields
        )

    async def served(self):
        return await self.cluster.served()

    async def _show(self, kind, key, read, *selection):
        if not (self.stuck and key in self.shown):
            found = read(kind, *selection)
            if key[0] == "get":
                self.shown[key] = None if found is None else found.decoded(kind.type)
            else:
                self.shown[key] = list(found)
        return self.shown[key]


@pytest.fixture
async def rig():
    made = Rig(Counting())
    revision = await start_training(made)
    made.watched = Watches(made.cluster)
    made.apply_plan("up", revision, checkpoint={"timeoutSeconds": 900})
    return made


def phases(rig):
    return {one.status.phase for one in rig.upgrades("up")}


async def test_a_group_that_waits_for_its_gang_costs_no_request(rig):
    rig.fleet.trainers["gang"].answers = lambda *_: None
    await rig.run_until(lambda: phases(rig) == {P.PREPARED})
    await rig.run_until(lambda: bool(rig.requests()))
    before, nodes, minutes = rig.cluster.looks, 2, 4
    for _ in range(60 * minutes):
        await rig.run_second()
    looked = rig.cluster.looks - before
    assert 0 < looked <= nodes * (60 * minutes // ANEW.total_seconds() + 1)


async def test_watches_that_got_stuck_delay_a_node_upgrade_by_no_more_than_the_next_whole_look(rig):
    await rig.run_until(lambda: phases(rig) == {P.UPGRADING})
    await rig.run_second()
    rig.watched.stuck = True
    began = rig.seconds
    await rig.run_until(lambda: phases(rig) == {P.LOADING})
    assert rig.seconds - began <= ANEW.total_seconds() + 10
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.fleet.trainers["gang"].stops) == (
        PlanPhase.COMPLETED,
        2,
    )  # both members, once
    rig.assert_nothing_left()


@given(stuck=st.lists(st.booleans(), min_size=1, max_size=40))
@examples(15)
async def test_watches_that_lag_as_they_like_change_no_outcome(stuck):
    rig = Rig()
    revision = await start_training(rig)
    rig.watched = Watches(rig.cluster)
    rig.apply_plan("up", revision)
    turns = iter(stuck * 100)
    rig.others.append(lambda: setattr(rig.watched, "stuck", next(turns)))
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    event(f"{rig.seconds // 60} minutes")
    trainer = rig.fleet.trainers["gang"]
    assert (rig.plan_now("up").status.phase, trainer.stops, trainer.lost) == (PlanPhase.COMPLETED, 2, 0)
    rig.assert_nothing_left()
