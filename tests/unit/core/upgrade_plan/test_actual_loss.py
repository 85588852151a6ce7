"""GPU-hours that a rollout has cost."""

from datetime import timedelta

from upgrader.core.upgrade_plan.actual_loss import Outage, lost_gpu_hours
from upgrader_dev.simulated.cluster.ports import START


def outage(begin: int, end: int, gpus: int = 8, group: str = "c") -> Outage:
    minutes = [START + timedelta(minutes=one) for one in (begin, end)]
    return Outage(group=group, gpus=gpus, begin=minutes[0], end=minutes[1])


def test_upgrades_add_up_and_a_gang_counts_beside_them():
    upgrades = [outage(10, 40), outage(10, 25)]
    assert lost_gpu_hours(upgrades, []) == 6.0
    assert lost_gpu_hours(upgrades, [outage(4, 46, gpus=16)]) == 6.0 + 16 * 12 / 60


def test_a_gang_whose_nodes_were_never_upgraded_lost_all_of_its_wait():
    assert lost_gpu_hours([outage(0, 60, group="another")], [outage(0, 30)]) == 12.0


def test_a_gang_that_went_on_elsewhere_lost_what_it_waited():
    assert lost_gpu_hours([outage(5, 65)], [outage(0, 10)]) == 8.6667


def test_nothing_costs_nothing():
    assert lost_gpu_hours([], []) == 0.0


def test_work_that_was_thrown_away_counts_whole_beside_the_upgrades_of_its_nodes():
    assert lost_gpu_hours([outage(10, 40)], [], [outage(0, 30, gpus=4)]) == 4.0 + 2.0
