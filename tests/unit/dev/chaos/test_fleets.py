"""Fleets of chaos runs: what is the same in most of them, and what differs in a few."""

from upgrader.api.resources import JOBS, PODS
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.fleets import MONTH, draw_fleet, install_fleet, populate_fleet
from upgrader_dev.chaos.rollouts import ApplySchedule
from upgrader_dev.simulated.cluster.rig import Rig


def test_the_clocks_of_nodes_are_wrong_in_a_few_runs_and_only_there_gangs_have_time_slices():
    found = [draw_fleet(Draws(seed, "fleet"), nodes=2) for seed in range(400)]
    wrong = [fleet for fleet in found if fleet.clocks]
    assert 10 < len(wrong) < 60
    assert {seconds for fleet in wrong for seconds in fleet.clocks.values()} == {0, -600, 600, -MONTH, MONTH}
    assert {gang.min_runtime for fleet in wrong for gang in fleet.gangs} == {"", "30s", "10m"}
    assert {gang.min_runtime for fleet in found if not fleet.clocks for gang in fleet.gangs} == {""}


async def test_pods_run_since_when_their_node_has_it():
    fleet = next(
        fleet
        for fleet in (draw_fleet(Draws(seed, "fleet"), nodes=1) for seed in range(2000))
        if fleet.clocks == {"gpu-0": MONTH} and fleet.gangs and fleet.gangs[0].kind == "Job"
    )
    rig = Rig()
    await install_fleet(rig, fleet, ApplySchedule(rig, fleet.rollouts))
    populate_fleet(rig, fleet)
    for _ in range(5):
        rig.fleet.tick()
    job = rig.cluster.store.read(JOBS, fleet.gangs[0].name, "default")
    pods = rig.cluster.store.list_owned(PODS, job["metadata"]["uid"])
    assert {pod["status"]["startTime"][:7] for pod in pods} == {"2026-12"}, "the run begins in November"
