"""Examples for job authors as processes: requested, parked, withdrawn, stopped with 143, resumed with no step lost."""

import contextlib
import http.client
import json
import re
import signal

import pytest

from tests.support.agreement import HUB, hub
from tests.support.authors import EXAMPLES, FAST, Example, free_port
from tests.support.programs import soon
from tests.support.repository import ROOT
from upgrader.process import daemon


def stop(programs):
    for program in programs:
        program.signal(signal.SIGTERM)
    return [program.wait() for program in programs]


def reached(example, step, logs=(0,)):
    soon(lambda: all(example.steps(log)[-1:] >= [step] for log in logs))


def no_steps(text):
    return re.sub(r"^step \d+\n", "", text, flags=re.MULTILINE)


def outcome(example, log=0):
    return re.findall(r"done .*", example.text(log))


class TestPlainLoop:
    @pytest.fixture
    def example(self, tmp_path):
        return Example(tmp_path)

    def test_it_is_asked_parks_is_stopped_and_resumes_with_no_step_lost(self, example, tmp_path):
        words = example.python("plain.py")
        with example.running(words, STEPS="60") as programs:
            reached(example, 5)
            example.pods[0].ask("7")
            answer = example.pods[0].parked(7)
            step = answer["step"]
            path = str(example.checkpoints / f"step-{step:08d}.json")
            assert answer == {"requestId": 7, "podUid": "uid-1-0", "step": step, "uri": path, "parked": True}
            assert stop(programs) == [143]
            assert example.steps() == list(range(1, step + 1))
        with example.running(words, STEPS="60") as programs:
            assert programs[0].wait() == 0
            assert example.steps() == list(range(step + 1, 61))
            assert example.pods[0].progress() == {"step": 60, "podUid": "uid-2-0"}
        whole = Example(tmp_path / "whole")
        with whole.running(whole.python("plain.py"), STEPS="60") as programs:
            assert programs[0].wait() == 0
        assert outcome(example) == outcome(whole) != []

    @pytest.mark.parametrize(("way_out", "why"), [("", "withdrawn"), ("8", "replaced"), (None, "expired")])
    def test_it_goes_on_from_the_very_next_step(self, example, way_out, why):
        with example.running(example.python("plain.py")) as programs:
            reached(example, 3)
            pod = example.pods[0]
            pod.ask("7", seconds=60 if way_out is not None else 1)
            step = (pod.answered(7) if way_out is None else pod.parked(7))["step"]
            if way_out is not None:
                pod.ask(way_out)
            example.said(f"go on: {why}")
            reached(example, step + 1)
            assert stop(programs) == [143]
        lines = example.text().splitlines()
        assert lines[lines.index(f"park {step}") :][1:3] == [f"go on: {why}", f"step {step + 1}"]

    def test_a_kill_without_asking_loses_what_it_says(self, example):
        words = example.python("plain.py")
        with example.running(words, CHECKPOINT_EVERY="10") as programs:
            reached(example, 25)
            programs[0].signal(signal.SIGKILL)
            programs[0].wait()
            last = example.steps()[-1]
        with example.running(words) as programs:
            example.said("resume")
            assert f"resume {last // 10 * 10}\n" in example.text()
            stop(programs)


class TestTorchLoopAgreeingWithoutTorch:
    @pytest.fixture
    def example(self, tmp_path):
        return Example(tmp_path, pods=2)

    def test_all_save_one_step_although_one_pod_sees_the_request_late_and_none_is_lost(self, example, tmp_path):
        words = [example.module("tests.support.agreeing")] * 4
        with hub(4) as port, example.running(*words, STEPS="60", **{HUB: str(port)}) as programs:
            reached(example, 5, range(4))
            example.pods[1].ask("7")
            answers = [pod.parked(7) for pod in example.pods]
            example.pods[0].ask("7")
            step = answers[0]["step"]
            uri = f"{example.checkpoints}/*/step-{step:08d}.json"
            wanted = {"requestId": 7, "step": step, "uri": uri, "parked": True}
            assert answers == [wanted | {"podUid": uid} for uid in ("uid-1-0", "uid-1-1")]
            assert len(list(example.checkpoints.glob(f"*/step-{step:08d}.json"))) == 4
            assert stop(programs) == [143] * 4
            assert [example.steps(log) for log in range(4)] == [list(range(1, step + 1))] * 4
        with hub(4) as port, example.running(*words, STEPS="60", **{HUB: str(port)}) as programs:
            assert [program.wait() for program in programs] == [0] * 4
            assert [example.steps(log) for log in range(4)] == [list(range(step + 1, 61))] * 4
        whole = Example(tmp_path / "whole", pods=2)
        with hub(4) as port, whole.running(*words, STEPS="60", **{HUB: str(port)}) as programs:
            assert [program.wait() for program in programs] == [0] * 4
        assert [outcome(example, log) for log in range(4)] == [outcome(whole, log) for log in range(4)]

    def test_nobody_takes_a_step_while_any_pod_is_parked(self, example):
        words = [example.module("tests.support.agreeing")] * 2
        with hub(2) as port, example.running(*words, **{HUB: str(port)}) as programs:
            reached(example, 3, range(2))
            for pod in example.pods:
                pod.ask("7")
            [step] = {pod.parked(7)["step"] for pod in example.pods}
            example.pods[0].ask("")
            soon(lambda: example.pods[0].answer()["parked"] is False)
            assert [example.steps(log)[-1] for log in range(2)] == [step, step]
            assert example.pods[1].answer()["parked"] is True
            example.pods[1].ask("")
            reached(example, step + 3, range(2))
            stop(programs)


class TestSideLoop:
    """The program under it is tests/support/mpi_program.py: it knows SIGUSR1 and nothing else."""

    @pytest.fixture
    def example(self, tmp_path):
        return Example(tmp_path, pods=2, environment=FAST | {"POLL": "0.1"})

    def words(self, example, ranks):
        program = example.module("tests.support.mpi_program")
        return [["bash", str(example.app / "side-loop.sh"), *program]] * ranks

    def test_pods_that_see_the_request_at_different_moments_answer_one_step_park_and_lose_nothing_before_it(
        self, example
    ):
        words = self.words(example, 4)
        with hub(4) as port, example.running(*words, **{HUB: str(port)}) as programs:
            reached(example, 5, range(4))
            example.pods[1].ask("7")  # the pod without rank 0
            answers = [pod.parked(7) for pod in example.pods]
            step = answers[0]["step"]
            uri = str(example.checkpoints / f"step-{step:08d}.done")
            wanted = {"requestId": 7, "step": step, "uri": uri, "parked": True}
            assert answers == [wanted | {"podUid": uid} for uid in ("uid-1-0", "uid-1-1")]
            parked_at = [example.steps(log) for log in range(4)]
            example.pods[0].ask("7")
            # One that waits for a processor takes the SIGTERM before the SIGSTOP that was sent earlier.
            soon(lambda: all(daemon.is_stopped(programs[rank].pid) for rank in (1, 3)))
            assert stop(programs) == [143, 137, 143, 137]  # the loops of both pods, and the ranks that each has ended
            assert [example.steps(log) for log in range(4)] == parked_at
        with hub(4) as port, example.running(*words, STEPS=str(step + 20), **{HUB: str(port)}) as programs:
            assert [program.wait() for program in programs] == [0] * 4
            assert [example.steps(log) for log in range(4)] == [list(range(step + 1, step + 21))] * 4

    @pytest.mark.parametrize(("way_out", "seconds"), [("", 60), (None, 1)], ids=["withdrawn", "expired"])
    def test_it_goes_on_and_answers_the_next_request(self, example, way_out, seconds):
        with hub(2) as port, example.running(*self.words(example, 2), **{HUB: str(port)}) as programs:
            reached(example, 3, range(2))
            for pod in example.pods:
                pod.ask("7", seconds=seconds)
            [step] = {(pod.answered(7) if way_out is None else pod.parked(7))["step"] for pod in example.pods}
            if way_out is not None:
                for pod in example.pods:
                    pod.ask(way_out)
            soon(lambda: all(f"park {step}\ngo on {step}\n" in no_steps(example.text(log)) for log in range(2)))
            assert [pod.answer()["parked"] for pod in example.pods] == [False, False]
            reached(example, max(example.steps()) + 3, range(2))
            for pod in example.pods:
                pod.ask("8")
            again = [pod.parked(8)["step"] for pod in example.pods]
            assert again[0] == again[1] > step
            assert example.pods[0].progress()["step"] == step
            stop(programs)

    def test_a_request_that_is_withdrawn_while_the_checkpoint_is_written_parks_nobody_for_long(self, example):
        with hub(2) as port, example.running(*self.words(example, 2), STEP_SECONDS="1", **{HUB: str(port)}) as programs:
            reached(example, 1, range(2))
            example.pods[0].ask("7")
            soon(lambda: list((example.checkpoints / ".side-loop").glob("asked-7")))
            example.pods[0].ask("")
            soon(lambda: "go on" in example.text())
            assert stop(programs) == [143, 143]

    def test_a_program_that_is_not_ready_for_the_signal_is_not_ended_by_it(self, example, tmp_path):
        slow = tmp_path / "slow.sh"
        slow.write_text('until [ -e "$GO" ]; do sleep 0.05; done\nexec "$@"\n')
        words = [[*each[:2], "bash", str(slow), *each[2:]] for each in self.words(example, 2)]
        go = tmp_path / "go"
        with hub(2) as port, example.running(*words, **{HUB: str(port), "GO": str(go)}) as programs:
            for pod in example.pods:
                pod.ask("7")
            soon(lambda: list((example.checkpoints / ".side-loop").glob("asked-7")))
            go.touch()
            assert [pod.parked(7)["parked"] for pod in example.pods] == [True, True]
            assert stop(programs) == [143, 143]

    def test_it_reads_no_output_of_commands_since_bash_loses_signals_that_come_meanwhile(self):
        code = [line.partition(" #")[0] for line in (EXAMPLES / "side-loop.sh").read_text().splitlines()]
        assert [line for line in code if re.search(r"\$\((?!\()|`", line) and not line.startswith("#")] == []

    def test_its_exit_code_is_that_of_the_program(self, example):
        words = [["bash", str(example.app / "side-loop.sh"), "bash", "-c", f"exit {code}"] for code in (0, 3)]
        with example.running(*words) as programs:
            assert [program.wait() for program in programs] == [0, 3]


class TestHttpLoop:
    @pytest.fixture
    def example(self, tmp_path):
        return Example(tmp_path)

    @contextlib.contextmanager
    def running(self, example, **variables):
        """The example, its endpoint once it listens."""
        port = free_port()
        with example.running(example.python("http_loop.py"), PORT=str(port), **variables) as programs:
            example.said("step 3\n")
            yield programs, Caller(port)

    def test_it_is_asked_parks_is_stopped_and_resumes_with_no_step_lost(self, example):
        asked = {"requestId": 7, "podUid": "uid-1-0", "parkSeconds": 60}
        with self.running(example) as (programs, caller):
            assert caller("GET", "/checkpoint")[0] == 404
            assert caller("POST", "/checkpoint", asked) == (202, None, None)
            answer = soon(lambda: caller.parked(7))
            step = answer["step"]
            path = str(example.checkpoints / f"step-{step:08d}.json")
            assert answer == {"requestId": 7, "podUid": "uid-1-0", "step": step, "uri": path, "parked": True}
            assert caller("POST", "/checkpoint", asked) == (200, answer, None)
            assert caller("GET", "/checkpoint/progress") == (200, {"step": step, "podUid": "uid-1-0"}, None)
            assert stop(programs) == [143]
            assert example.steps() == list(range(1, step + 1))
        lines = ["resume 0", *(f"step {number}" for number in range(1, step + 1)), f"park {step}"]
        assert example.text().splitlines() == lines, "no line of the HTTP server is in the log of the training"
        with example.running(example.python("http_loop.py"), PORT=str(free_port()), STEPS=str(step + 5)) as programs:
            assert programs[0].wait() == 0
            assert example.steps() == list(range(step + 1, step + 6))

    @pytest.mark.parametrize("seconds", [60, 1], ids=["withdrawn", "expired"])
    def test_it_goes_on_from_the_very_next_step(self, example, seconds):
        with self.running(example) as (programs, caller):
            caller("POST", "/checkpoint", {"requestId": 7, "podUid": "uid-1-0", "parkSeconds": seconds})
            step = soon(lambda: caller.parked(7) if seconds == 60 else caller.answered(7))["step"]
            assert caller("DELETE", "/checkpoint?requestId=6")[0] == 204  # another request: nothing to it
            if seconds == 60:
                assert caller("DELETE", "/checkpoint?requestId=7")[0] == 204
            why = "withdrawn" if seconds == 60 else "expired"
            reached(example, step + 1)
            assert caller("GET", "/checkpoint")[1]["parked"] is False
            assert stop(programs) == [143]
        lines = example.text().splitlines()
        taken = [line for line in lines if line.startswith(("park", "go on", "step"))]
        assert taken[taken.index(f"park {step}") :][1:3] == [f"go on: {why}", f"step {step + 1}"]

    def test_it_says_not_now_while_it_evaluates_and_how_long(self, example):
        asked = {"requestId": 7, "podUid": "uid-1-0", "parkSeconds": 60}
        with self.running(example, EVALUATE_EVERY="5", EVALUATION_SECONDS="1000") as (programs, caller):
            example.said("evaluate")
            refusal = {"refused": "in the middle of an evaluation"}
            assert caller("POST", "/checkpoint", asked) == (409, refusal, "1001")
            assert example.steps() == [1, 2, 3, 4, 5]
            assert stop(programs) == [143]


class Caller:
    """What the upgrader says to a pod, without the API server between them."""

    def __init__(self, port):
        self._port = port

    def __call__(self, method, path, body=None):
        """Status, JSON body, Retry-After."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body))
            reply = connection.getresponse()
            text = reply.read()
        return reply.status, json.loads(text) if text else None, reply.headers["Retry-After"]

    def answered(self, request):
        """The acknowledgement of this request, where there is one."""
        status, said, _ = self("GET", "/checkpoint")
        return said if status == 200 and said["requestId"] == request else None

    def parked(self, request):
        """The acknowledgement, where it says parked for this request."""
        said = self.answered(request)
        return said if said and said["parked"] else None


def test_every_example_is_on_the_page_and_every_one_on_the_page_is_tested():
    page = (ROOT / "docs/guides/job-authors/checkpointing.md").read_text()
    shipped = {path.name for path in (ROOT / "docs/examples/checkpointing").iterdir() if path.is_file()}
    assert {name for name in shipped if f"examples/checkpointing/{name}" in page} == shipped
