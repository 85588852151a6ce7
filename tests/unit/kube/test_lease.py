"""The lease in virtual time: who leads, when it is noticed, and what a frozen process may still do (nothing)."""

import asyncio

import pytest

from tests.support.waiting import eventually
from upgrader.core.errors import LostLeadershipError, UnreachableError
from upgrader.kube.lease import LEASES, Election, Timing, own_identity
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

PLACE = {"name": "controller", "namespace": "gpu-upgrader-system"}


@pytest.fixture
def cluster():
    return FakeCluster()


def candidate(cluster, identity, **kwargs):
    def seconds():
        return cluster.clock.now().timestamp()

    return Election(cluster, identity=identity, clock=seconds, **PLACE, **kwargs)


def leads(election):
    try:
        election.check()
    except LostLeadershipError:
        return False
    return True


async def spec(cluster):
    return (await cluster.get(LEASES, PLACE["name"], PLACE["namespace"])).spec


async def test_the_first_candidate_leads_and_the_second_waits(cluster):
    first, second = candidate(cluster, "a"), candidate(cluster, "b")
    assert not leads(first)
    assert await first.attempt()
    assert not await second.attempt()
    assert (leads(first), leads(second)) == (True, False)
    found = await spec(cluster)
    assert (found.holder_identity, found.lease_duration_seconds, found.lease_transitions) == ("a", 30, 0)


async def test_a_renewed_lease_is_never_taken(cluster):
    first, second = candidate(cluster, "a"), candidate(cluster, "b")
    await first.attempt()
    for _ in range(40):
        cluster.clock.advance(5)
        assert await first.attempt()
        assert not await second.attempt()
    assert leads(first)


async def test_a_frozen_leader_may_not_act_when_its_successor_leads(cluster):
    first, second = candidate(cluster, "a"), candidate(cluster, "b")
    await first.attempt()
    await second.attempt()
    while not await second.attempt():
        assert not leads(second)
        cluster.clock.advance(1)
    assert cluster.clock.now().timestamp() == pytest.approx(1795251600 + 30)
    assert (leads(first), leads(second)) == (False, True)
    assert not await first.attempt(), "woken, it learns of its successor"
    assert (await spec(cluster)).lease_transitions == 1


async def test_a_leader_stops_ten_seconds_before_the_lease_ends(cluster):
    """The last write it may start has ended, or timed out, when a successor can lead."""
    leader = candidate(cluster, "a")
    await leader.attempt()
    cluster.reachable = False
    cluster.clock.advance(20)
    assert leads(leader)
    cluster.clock.advance(0.1)
    assert not leads(leader)


async def test_a_renewal_whose_answer_was_lost_does_not_count(cluster):
    leader = candidate(cluster, "a")
    await leader.attempt()
    cluster.clock.advance(15)
    cluster.fail_at(1, UnreachableError("cut"), acted=True)
    with pytest.raises(UnreachableError):
        await leader.attempt()
    cluster.clock.advance(6)
    assert not leads(leader)
    assert await leader.attempt(), "the lease is still held: read again, renewed"
    assert leads(leader)


async def test_a_lease_released_is_taken_at_once(cluster):
    first, second = candidate(cluster, "a"), candidate(cluster, "b")
    await first.attempt()
    await first.release()
    assert not leads(first)
    assert await second.attempt()


async def test_a_lease_that_somebody_deleted_is_made_again(cluster):
    leader = candidate(cluster, "a")
    await leader.attempt()
    cluster.store.remove(LEASES, PLACE["name"], PLACE["namespace"])
    assert await leader.attempt()
    assert leads(leader)


async def test_of_two_that_take_over_at_the_same_moment_one_wins(cluster):
    first, second = candidate(cluster, "a"), candidate(cluster, "b")
    await first.attempt()
    await second.attempt()
    cluster.clock.advance(31)

    def third_is_faster(_write):
        cluster.store.change(LEASES, PLACE["name"], {"spec": {"holderIdentity": "c"}}, PLACE["namespace"])

    cluster.before_write = third_is_faster
    assert not await second.attempt()
    assert not leads(second)


@pytest.mark.parametrize("values", [{"act": 21.0}, {"duration": 15}, {"renew": 20.0}])
def test_times_that_break_the_rule_are_refused(values):
    with pytest.raises(ValueError, match="must hold"):
        Timing(**values)


def test_no_two_processes_have_one_identity():
    assert own_identity() != own_identity()
    assert own_identity("pod") != own_identity("pod")


# ---- run(), in real time with a quick lease on the fake


async def test_work_runs_while_we_lead_and_the_lease_is_released(cluster):
    done = []

    async def work():
        done.append((await spec(cluster)).holder_identity)

    await candidate(cluster, "a").run(work)
    assert done == ["a"]
    assert (await spec(cluster)).holder_identity is None


async def test_work_is_cancelled_when_the_lease_is_lost(cluster):
    events = []
    election = candidate(cluster, "a", timing=Timing(renew=0.01))

    async def work():
        events.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    running = asyncio.create_task(election.run(work))

    async def started():
        return events

    await eventually(started)
    cluster.store.change(LEASES, PLACE["name"], {"spec": {"holderIdentity": "b"}}, PLACE["namespace"])
    with pytest.raises(LostLeadershipError):
        await running
    assert events == ["started", "cancelled"]
    assert (await spec(cluster)).holder_identity == "b", "what is another's is not released"


async def test_an_error_of_the_work_ends_the_run_and_gives_the_lease_back(cluster):
    async def work():
        raise RuntimeError("a fault of the program")

    with pytest.raises(RuntimeError, match="a fault of the program"):
        await candidate(cluster, "a").run(work)
    assert (await spec(cluster)).holder_identity is None
