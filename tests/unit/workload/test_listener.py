import json
import os
import signal
import sys
import threading

import pytest

from tests.support.programs import soon, started
from tests.support.repository import ROOT
from upgrader.workload import CheckpointListener


class Pod:
    """The two volumes of a pod, a clock, and what happens at which moment of it."""

    def __init__(self, folder):
        self.requests, self.answers = folder / "requests", folder / "answers"
        self.requests.mkdir()
        self.answers.mkdir()
        self.now = 100.0
        self.at: dict[float, dict[str, str]] = {}
        self.listener = CheckpointListener(
            requests=self.requests,
            answers=self.answers,
            pod_uid="uid-1",
            exit_on_sigterm=False,
            monotonic=lambda: self.now,
            wait=self.wait,
        )

    def ask(self, request, seconds="300"):
        self.show({"checkpoint-request": request, "park-seconds": seconds})

    def show(self, files):
        for name, text in files.items():
            (self.requests / name).write_text(text)

    def wait(self, seconds):
        assert 0 < seconds <= 0.2
        self.now += seconds
        for moment in [moment for moment in self.at if moment <= self.now]:
            self.show(self.at.pop(moment))

    def ack(self):
        return json.loads((self.answers / "ack.json").read_text())


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path)


def test_no_volume_and_an_empty_annotation_are_no_request(pod):
    assert pod.listener.requested() is None
    pod.ask("")
    assert pod.listener.requested() is None
    assert pod.listener.park_seconds() == 300.0


@pytest.mark.parametrize("text", ["abc", "-5", "1.5", "１２", "0x10"])
def test_a_request_that_is_no_number_is_said_and_not_taken(pod, capsys, text):
    pod.ask(text)
    assert pod.listener.requested() is None
    assert "checkpoint-request is not a number" in capsys.readouterr().err


def test_a_request_is_seen_until_it_is_answered(pod):
    pod.ask("1700000000\n")
    assert pod.listener.requested() == 1700000000
    assert pod.listener.requested() == 1700000000
    pod.listener.acknowledge(1700000000, 40, "/checkpoints/40")
    assert pod.listener.requested() is None
    pod.ask("1700000001")
    assert pod.listener.requested() == 1700000001
    pod.listener.refuse(1700000001, "in the middle of an evaluation")
    assert pod.listener.requested() is None


def test_an_acknowledgement_is_not_parked_before_it_parks(pod):
    pod.listener.acknowledge(7, 40, "/checkpoints/40")
    expected = {"requestId": 7, "podUid": "uid-1", "step": 40, "uri": "/checkpoints/40", "parked": False}
    assert pod.ack() == expected
    assert [path.name for path in pod.answers.iterdir()] == ["ack.json"]


def test_a_refusal_says_why(pod):
    pod.listener.refuse(7, "not now")
    assert pod.ack() == {"requestId": 7, "podUid": "uid-1", "step": 0, "parked": False, "refused": "not now"}


def test_parking_ends_when_the_request_is_withdrawn(pod):
    seen = []
    pod.ask("7")
    pod.listener.acknowledge(7, 40, "x")
    pod.at = {150.0: {"checkpoint-request": ""}}
    original = pod.wait
    pod.listener._wait = lambda seconds: (seen.append(pod.ack()["parked"]), original(seconds))
    assert pod.listener.park(7) == "withdrawn"
    assert set(seen) == {True}
    assert 150 <= pod.now < 150.3
    assert pod.ack()["parked"] is False


def test_parking_ends_by_its_own_clock(pod):
    pod.ask("7", "30")
    pod.listener.acknowledge(7, 40, "x")
    assert pod.listener.park(7) == "expired"
    assert pod.now == pytest.approx(130)
    assert pod.ack()["parked"] is False


def test_parking_ends_when_it_is_asked_again(pod):
    pod.ask("7")
    pod.listener.acknowledge(7, 40, "x")
    pod.at = {101.0: {"checkpoint-request": "8"}}
    assert pod.listener.park(7) == "replaced"
    assert pod.listener.requested() == 8


def test_a_member_whose_own_file_follows_later_waits_for_it(pod):
    pod.listener.acknowledge(7, 40, "x")
    pod.at = {105.0: {"checkpoint-request": "7", "park-seconds": "300"}, 110.0: {"checkpoint-request": ""}}
    assert pod.listener.park(7, 60) == "withdrawn"
    assert 110 <= pod.now < 110.3


def test_a_member_whose_own_file_never_follows_trains_on_at_the_end(pod):
    pod.listener.acknowledge(7, 40, "x")
    assert pod.listener.park(7, 60) == "expired"
    assert pod.now == pytest.approx(160)


def test_parking_needs_an_acknowledgement(pod):
    with pytest.raises(ValueError, match="was not acknowledged"):
        pod.listener.park(7)
    pod.listener.acknowledge(7, 1, "x")
    with pytest.raises(ValueError, match="was not acknowledged"):
        pod.listener.park(8)


def test_progress_is_told(pod):
    pod.listener.progress(41)
    assert json.loads((pod.answers / "progress.json").read_text()) == {"step": 41, "podUid": "uid-1"}


def test_without_a_pod_uid_nothing_is_answered(monkeypatch):
    monkeypatch.delenv("POD_UID", raising=False)
    with pytest.raises(ValueError, match="POD_UID"):
        CheckpointListener()


def test_no_handler_is_installed_outside_the_main_thread():
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: CheckpointListener(pod_uid="u"))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


LOOP = """
import sys; sys.path.insert(0, sys.argv[1])
from workload import CheckpointListener
listener = CheckpointListener(requests=sys.argv[2], answers=sys.argv[3])
listener.acknowledge(7, 40, "x")
print("parked", flush=True)
listener.park(7, 60)
"""


def test_one_copied_file_is_enough_and_a_parked_process_ends_with_143(tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/workload.py").write_text((ROOT / "upgrader/workload.py").read_text())
    words = [
        sys.executable,
        "-I",
        "-S",
        "-W",
        "error",
        "-c",
        LOOP,
        str(tmp_path / "copy"),
        str(tmp_path),
        str(tmp_path),
    ]
    env = {**os.environ, "POD_UID": "uid-1"}
    with started(words, log=tmp_path / "log", env=env) as program:
        soon(lambda: (tmp_path / "ack.json").exists() and json.loads((tmp_path / "ack.json").read_text())["parked"])
        program.signal(signal.SIGTERM)
        assert program.wait() == 143
    assert json.loads((tmp_path / "ack.json").read_text())["parked"] is True
