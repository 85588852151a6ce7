"""Cores and memory that parallel builds share: never more than there are, and lost ones come back."""

import os
import threading

import pytest

from tests.support.programs import soon
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.process import run


def tokens(budget):
    """How many cores are free; they are put back."""
    pipe = os.open(budget.tokens, os.O_RDWR | os.O_NONBLOCK)
    try:
        taken = os.read(pipe, 1000)
        os.write(pipe, taken)
    except BlockingIOError:
        return 0
    finally:
        os.close(pipe)
    return len(taken)


@pytest.fixture
def budget(tmp_path):
    with BuildBudget(tmp_path, cores=2, memory_mib=100) as made:
        yield made


def test_a_build_holds_a_core_and_gives_it_back(budget):
    with budget.reserve_share(10):
        assert tokens(budget) == 1
    assert tokens(budget) == 2


def _enter(budget, memory, inside, leave):
    with budget.reserve_share(memory):
        inside.set()
        leave.wait(20)


@pytest.mark.parametrize(("memory", "both"), [(50, True), (60, False)])
def test_builds_wait_for_memory(budget, memory, both):
    threads, events = [], []
    for _ in range(2):
        inside, leave = threading.Event(), threading.Event()
        threads.append(threading.Thread(target=_enter, args=(budget, memory, inside, leave), daemon=True))
        events.append((inside, leave))
    for thread in threads:
        thread.start()
    soon(lambda: any(inside.is_set() for inside, _ in events))
    first = next(number for number, (inside, _) in enumerate(events) if inside.is_set())
    other_inside, other_leave = events[1 - first]
    assert other_inside.wait(20 if both else 0.2) is both
    events[first][1].set()
    assert other_inside.wait(20)
    other_leave.set()
    for thread in threads:
        thread.join(20)
    assert tokens(budget) == 2


def test_a_build_that_wants_more_memory_than_there_is_is_built_alone(budget):
    with budget.reserve_share(1000):
        assert tokens(budget) == 1


def test_cores_that_a_killed_make_has_taken_with_it_are_there_again(budget):
    with budget.reserve_share(10):
        pipe = os.open(budget.tokens, os.O_RDWR)
        assert os.read(pipe, 1) == b"+"  # a make that dies before it gives it back
        os.close(pipe)
        assert tokens(budget) == 0
    assert tokens(budget) == 2


def test_make_takes_its_jobs_from_it(budget, tmp_path):
    (tmp_path / "Makefile").write_text("all: a b c d\na b c d:\n\t@echo start; sleep 0.2; echo end\n")
    script = f'exec make -s 8<>"{budget.tokens}" 9<>"{budget.tokens}" 2>&1'
    with budget.reserve_share(10):
        told = run(["sh", "-c", script], timeout=20, cwd=tmp_path, env={"MAKEFLAGS": "-j --jobserver-auth=8,9"})
        running, most = 0, 0
        for line in told.text.splitlines():
            running += 1 if line == "start" else -1
            most = max(most, running)
        assert (most, tokens(budget)) == (2, 1)


@pytest.mark.parametrize(("cores", "memory"), [(0, 1), (1, 0)])
def test_nothing_cannot_be_shared(tmp_path, cores, memory):
    with pytest.raises(ConfigurationError):
        BuildBudget(tmp_path, cores=cores, memory_mib=memory)
