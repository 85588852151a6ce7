"""The API server with faults: what a client meets, what is done all the same, and who is said to have done it."""

from datetime import timedelta

import pytest

from upgrader.api.resources import PODS
from upgrader.core.errors import ClusterError, ConflictError, ThrottledError, UnreachableError
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault, Rates, draw_rates
from upgrader_dev.chaos.laws.journal import Author
from upgrader_dev.chaos.ports import CALM, LONGEST_READ_SECONDS, FaultyCluster
from upgrader_dev.simulated.cluster.ports import START, ProcessKilled

POD = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"containers": []}}


@pytest.fixture
def cluster():
    return FaultyCluster(Draws(1, "ports"))


@pytest.fixture
def entries(cluster):
    found = []
    cluster.journal.readers.append(found.append)
    return found


async def created(cluster, fault):
    cluster.rates = Rates({fault: 1.0})
    try:
        await cluster.create(PODS, POD)
    finally:
        cluster.rates = CALM


NOT_DONE = {
    Fault.THROTTLED: ThrottledError,
    Fault.THROTTLED_FOR: ThrottledError,
    Fault.UNAVAILABLE: UnreachableError,
    Fault.FORBIDDEN: ClusterError,
    Fault.CRASH_BEFORE: ProcessKilled,
}


@pytest.mark.parametrize(("fault", "error"), NOT_DONE.items(), ids=[fault.value for fault in NOT_DONE])
async def test_a_write_that_is_refused_is_not_done(cluster, entries, fault, error):
    with pytest.raises(error):
        await created(cluster, fault)
    assert entries == []


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.ANSWER_LOST, UnreachableError), (Fault.CRASH_AFTER, ProcessKilled)]
)
async def test_a_write_whose_answer_is_lost_is_done(cluster, entries, fault, error):
    with pytest.raises(error):
        await created(cluster, fault)
    assert [(one.kind, one.verb, one.author) for one in entries] == [("Pod", "create", Author.CONTROLLER)]


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.LATE_WRITE, UnreachableError), (Fault.FROZEN_LEADER, ProcessKilled)]
)
async def test_a_late_write_is_the_controllers_and_of_the_time_when_it_was_sent(cluster, entries, fault, error):
    with pytest.raises(error):
        await created(cluster, fault)
    assert entries == []
    cluster.clock.advance(120)
    assert [(one.author, one.sent) for one in entries] == [(Author.CONTROLLER, START)]
    assert START < entries[0].at <= START + timedelta(seconds=90)


async def test_a_late_write_that_does_not_fit_any_more_changes_nothing(cluster, entries):
    with pytest.raises(UnreachableError):
        await created(cluster, Fault.LATE_WRITE)
    cluster.store.put(PODS, POD)
    cluster.clock.advance(120)
    assert [one.author for one in entries] == [Author.WORLD]


async def test_a_write_meets_a_newer_object(cluster):
    pod = await cluster.create(PODS, POD)
    cluster.rates = Rates({Fault.CONFLICT: 1.0})
    with pytest.raises(ConflictError):
        await cluster.merge(PODS, pod.metadata, {"metadata": {"labels": {"a": "b"}}})


async def test_nothing_of_a_dead_process_goes_on(cluster):
    with pytest.raises(ProcessKilled):
        await created(cluster, Fault.CRASH_BEFORE)
    with pytest.raises(ProcessKilled):
        await cluster.get(PODS, "a", "default")
    cluster.killed = False
    assert await cluster.get(PODS, "a", "default") is None


def test_a_fault_that_is_left_out_changes_no_other():
    with_all = [draw_rates(Draws(seed, "faults"), off=()).by_fault for seed in range(50)]
    without = [draw_rates(Draws(seed, "faults"), off={Fault.CORDON}).by_fault for seed in range(50)]
    assert without == [{fault: rate for fault, rate in of.items() if fault is not Fault.CORDON} for of in with_all]
    assert {fault for of in with_all for fault in of} == set(Fault)


@pytest.mark.parametrize("read", ["get", "list"])
async def test_a_slow_read_gives_what_was_there_when_it_was_made_while_the_world_goes_on(cluster, read):
    cluster.store.put(PODS, POD)

    def second():
        cluster.clock.advance(1)
        cluster.store.change(PODS, "a", {"status": {"phase": "Running"}}, "default")

    cluster.pass_second, cluster.rates = second, Rates({Fault.READ_SLOW: 1.0})
    found = await cluster.get(PODS, "a", "default") if read == "get" else (await cluster.list(PODS))[0]
    assert found.status.phase != "Running"
    assert cluster.store.find_stored(PODS, "a", "default").value["status"]["phase"] == "Running"
    assert START < cluster.clock.now() <= START + timedelta(seconds=LONGEST_READ_SECONDS)


async def test_a_process_that_is_killed_waits_for_no_slow_read(cluster):
    def second():
        cluster.clock.advance(1)
        cluster.killed = True

    cluster.pass_second, cluster.rates = second, Rates({Fault.READ_SLOW: 1.0})
    with pytest.raises(ProcessKilled):
        await cluster.list(PODS)
    assert cluster.clock.now() == START + timedelta(seconds=1)
