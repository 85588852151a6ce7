"""What happens in the world of a chaos run, and that it passes."""

import pytest

from upgrader.api.resources import NODES
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.events import LONGEST_DISTURBANCE, Events
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.fleets import draw_fleet
from upgrader_dev.chaos.ports import FaultyCluster
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
def rig():
    return Rig(FaultyCluster(Draws(1, "ports")))


@pytest.fixture
def events(rig):
    fleet = draw_fleet(Draws(1, "fleet"), 1)
    rig.fleet.add_node("gpu-0")
    return Events(rig, fleet, Draws(1, "events"))


def test_a_cordon_is_odd_until_it_is_over(rig, events):
    events.actions[Fault.CORDON]()
    assert (rig.cluster.store.read(NODES, "gpu-0")["spec"]["unschedulable"], events.disturbances) == (True, 1)
    rig.cluster.clock.advance(LONGEST_DISTURBANCE)
    assert (rig.cluster.store.read(NODES, "gpu-0")["spec"].get("unschedulable"), events.disturbances) == (None, 0)
