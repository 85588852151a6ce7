"""torch_loop.py under torchrun: two pods of two processes that agree through torch.distributed (gloo)."""

import contextlib
import re
import signal
import time

import pytest

from tests.support.authors import Example, free_port
from tests.support.programs import soon
from tests.support.repository import ROOT

PYTHON = ROOT / "build/torch/python"
"""Made by `make torch`."""

KILLED_AFTER = 30.0
"""Seconds that torchrun leaves its workers after SIGTERM, whatever the pod's grace period."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def example(tmp_path):
    return Example(tmp_path, pods=2)


@contextlib.contextmanager
def torchrun(example, script="torch_loop.py", **extra):
    """Both pods' agents, each with two processes."""
    where = ["--nnodes", "2", "--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    # torch 1.13 under Python 3.11 starts no process with the defaults of these two
    where += ["--redirects", "1", "--tee", "1"]
    agents = [
        [str(PYTHON), "-m", "torch.distributed.run", *where, "--node_rank", str(pod), str(example.app / script)]
        for pod in range(2)
    ]
    with example.running(*agents, PYTHONWARNINGS="default", OMP_NUM_THREADS="1", **extra) as programs:
        yield programs


def steps(example):
    return [example.steps(rank // 2, str(rank)) for rank in range(4)]


def reached(example, step):
    soon(lambda: all(taken[-1:] >= [step] for taken in steps(example)), 60)


def test_all_save_one_step_although_one_pod_sees_the_request_late_and_none_is_lost(example):
    with torchrun(example, STEPS="60") as programs:
        reached(example, 5)
        example.pods[1].ask("7")
        answers = [pod.parked(7) for pod in example.pods]
        example.pods[0].ask("7")
        step = answers[0]["step"]
        wanted = {"requestId": 7, "step": step, "uri": f"{example.checkpoints}/*/step-{step:08d}.json", "parked": True}
        assert answers == [wanted | {"podUid": uid} for uid in ("uid-1-0", "uid-1-1")]
        assert len(list(example.checkpoints.glob(f"*/step-{step:08d}.json"))) == 4
        for program in programs:
            program.signal(signal.SIGTERM)
        codes = [program.wait(60) for program in programs]
        assert all(codes)  # never 0: torchrun says 1 where its workers said 143
        assert steps(example) == [list(range(1, step + 1))] * 4
    with torchrun(example, STEPS="60") as programs:
        assert [program.wait(120) for program in programs] == [0, 0]
        assert steps(example) == [list(range(step + 1, 61))] * 4


def test_a_gang_that_is_released_trains_on_together(example):
    with torchrun(example) as programs:
        reached(example, 3)
        for pod in example.pods:
            pod.ask("7", seconds=2)
        [step] = {pod.parked(7)["step"] for pod in example.pods}
        reached(example, step + 3)
        assert [pod.answer()["parked"] for pod in example.pods] == [False, False]
        for program in programs:
            program.signal(signal.SIGTERM)
        assert all(program.wait(60) for program in programs)
    assert [re.findall(r"rank \d: go on (\d+)", example.text(pod)) for pod in (0, 1)] == [[str(step)] * 2] * 2


def test_torchrun_ends_what_ignores_sigterm_after_thirty_seconds(example):
    stubborn = example.app / "stubborn.py"
    stubborn.write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    with torchrun(example, "stubborn.py") as programs:
        soon(lambda: all(example.text(pod).count("ready") == 2 for pod in (0, 1)), 120)
        since = time.monotonic()
        for program in programs:
            program.signal(signal.SIGTERM)
        assert all(program.wait(90) for program in programs)
        assert KILLED_AFTER <= time.monotonic() - since < 2 * KILLED_AFTER
