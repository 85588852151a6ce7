"""Fleets made up from a seed."""

import msgspec

from upgrader.simulate.fleets.drawn_fleet import SIZES, FleetSpec, make_fleet

SPEC = FleetSpec(nodes=1750, seed=1)
FLEET = make_fleet(SPEC)


def used(fleet):
    count = {}
    for job in fleet.jobs:
        for node in job.nodes:
            count[node] = count.get(node, 0) + job.gpus
    return count


def test_the_same_seed_gives_the_same_fleet_and_another_seed_another():
    assert make_fleet(SPEC) == FLEET
    assert make_fleet(msgspec.structs.replace(SPEC, seed=2)) != FLEET


def test_sizes_are_those_of_the_fleets_that_were_studied():
    assert sum(SIZES.values()) == 1000
    exclusive = make_fleet(msgspec.structs.replace(SPEC, shared=0, idle=0))
    assert 200 <= len(exclusive.jobs) <= 290, "1,750 nodes carry about 244 gangs"
    assert {job.size for job in exclusive.jobs} >= {1, 2, 4, 8, 16, 32}


def test_no_node_carries_more_than_it_has():
    assert max(used(FLEET).values()) <= 8
    assert len(FLEET.nodes) - len(used(FLEET)) == 70, "4 % are idle"


def test_gangs_that_share_stand_on_the_same_nodes():
    halves = [job for job in FLEET.jobs if job.gpus == 4]
    assert halves
    assert all(one.nodes == other.nodes for one, other in zip(halves[::2], halves[1::2], strict=True))


def test_the_largest_gang_is_a_parameter_and_the_fleet_may_be_small():
    small = make_fleet(FleetSpec(nodes=50, seed=3, largest=2))
    assert len(small.nodes) == 50
    assert max(job.size for job in small.jobs) == 2


def test_undeclared_jobs_end_and_tell_nobody():
    silent = [job for job in FLEET.jobs if not job.method]
    assert silent
    assert all(job.end and job.declared_end is None for job in silent)


def test_arrivals_are_placed_later():
    fleet = make_fleet(FleetSpec(nodes=200, seed=4, arriving=0.5))
    later = [job for job in fleet.jobs if job.start > 0]
    assert later
    assert not any(job.running for job in later)
    assert all(job.running for job in fleet.jobs if job.start <= 0)
