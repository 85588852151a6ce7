"""The trainer as real processes: a gang in step, asked, parked, stopped, restarted; and every way to misbehave."""

import json
import signal
import socket

import pytest

from tests.support.programs import soon
from tests.support.training import Gang
from upgrader.process import run

FAST = ("--step-seconds", "0.01")
SHORT = (*FAST, "--steps", "60", "--checkpoint-every", "25")


@pytest.fixture
def gang(tmp_path):
    return Gang(tmp_path)


def stop(programs):
    for program in programs:
        program.signal(signal.SIGTERM)
    return [program.wait() for program in programs]


def weights(gang):
    return [gang.events(number, "done")[-1]["weights"] for number in range(gang.members)]


def test_a_gang_trains_to_the_end_in_step_and_gets_better(gang):
    with gang.running(*SHORT) as programs:
        assert [program.wait() for program in programs] == [0, 0]
    assert gang.steps(0) == gang.steps(1) == list(range(1, 61))
    losses = [line["loss"] for line in gang.events(0, "step")]
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    assert [line["loss"] for line in gang.events(1, "step")] == losses
    assert weights(gang)[0] == weights(gang)[1]
    assert gang.progress(0) == {"step": 60, "podUid": "uid-1-0"}


def test_all_save_at_one_step_although_only_one_saw_the_request_then_park_stop_and_lose_nothing(gang, tmp_path):
    with gang.running(*SHORT, "--checkpoint-every", "1000") as programs:
        gang.reached(5)
        gang.ask("7", members=[1])
        first, second = gang.parked(7)
        gang.ask("7", members=[0])
        assert first["step"] == second["step"] >= 5
        assert (first["podUid"], second["podUid"]) == ("uid-1-0", "uid-1-1")
        assert first["uri"].endswith(f"checkpoints/member-0/{first['step']:08d}.json")
        assert stop(programs) == [143, 143]
    stopped_at = first["step"]
    assert gang.steps(0) == gang.steps(1) == list(range(1, stopped_at + 1))
    assert [line["event"] for line in gang.events(0)][-4:] == ["checkpoint", "acknowledge", "park", "stop"]
    with gang.running(*SHORT) as programs:
        assert [program.wait() for program in programs] == [0, 0]
    assert [line["step"] for line in gang.events(0, "resume")] == [0, stopped_at]
    assert gang.steps(0) == gang.steps(1) == list(range(1, 61))
    whole = Gang(tmp_path / "whole")
    with whole.running(*SHORT) as programs:
        assert [program.wait() for program in programs] == [0, 0]
    assert weights(gang) == weights(whole)


def test_a_withdrawn_request_lets_all_train_on(gang):
    with gang.running(*FAST) as programs:
        gang.reached(3)
        gang.ask("7")
        step = gang.parked(7)[0]["step"]
        gang.ask("")
        gang.reached(step + 5)
        assert [gang.answer(number)["parked"] for number in (0, 1)] == [False, False]
        gang.ask("8")
        assert gang.parked(8)[0]["step"] > step
        assert stop(programs) == [143, 143]


def test_parking_ends_by_itself(gang):
    with gang.running(*FAST) as programs:
        gang.reached(3)
        gang.ask("7", seconds=1)
        step = gang.answers(7)[0]["step"]
        gang.reached(step + 5)
        assert stop(programs) == [143, 143]
    assert [line["event"] for line in gang.events(0, "park", "unpark")] == ["park", "unpark"]
    assert {line["why"] for line in gang.events(0, "unpark")} == {"expired"}


def test_a_parked_gang_that_is_asked_again_answers_the_later_request_at_one_step(gang):
    with gang.running(*FAST) as programs:
        gang.reached(3)
        gang.ask("7")
        step = gang.parked(7)[0]["step"]
        assert gang.steps(0)[-1] == gang.steps(1)[-1] == step
        gang.ask("8")  # that they agree on it takes them one step
        assert [answer["step"] for answer in gang.parked(8)] == [step + 1, step + 1]
        stop(programs)


def test_no_park_loses_steps(gang):
    flags = (*FAST, "--checkpoint-every", "100000", "--no-park")
    with gang.running(*flags) as programs:
        gang.reached(3)
        gang.ask("7")
        claimed = gang.parked(7)[0]["step"]
        gang.reached(claimed + 10)
        stop(programs)
    last = gang.steps(0)[-1]
    with gang.running(*flags) as programs:
        soon(lambda: len(gang.events(0, "resume")) == 2)
        stop(programs)
    assert last - gang.events(0, "resume")[-1]["step"] >= 10


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ("unparked", {"requestId": 7, "parked": False, "podUid": "uid-1-0"}),
        ("refuse", {"requestId": 7, "parked": False, "refused": "this trainer was told to refuse"}),
        ("wrong-id", {"requestId": 6, "parked": False}),
        ("wrong-uid", {"requestId": 7, "parked": True, "podUid": "00000000-0000-0000-0000-000000000000"}),
    ],
)
def test_ways_to_misbehave(gang, behaviour, expected):
    with gang.running(*FAST, "--behaviour", behaviour) as programs:
        gang.reached(3)
        gang.ask("7")
        soon(lambda: expected.items() <= (gang.answer(0) or {}).items())
        if not expected["parked"]:
            gang.reached(gang.steps(0)[-1] + 5)
        stop(programs)


def test_unequal_steps_of_one_member(gang):
    with gang.running(*FAST, "--behaviour", "wrong-step", "--behaving", "1") as programs:
        gang.reached(3)
        gang.ask("7")
        first, second = gang.parked(7)
        assert second["step"] == first["step"] + 1
        stop(programs)


def test_a_silent_job_trains_on_and_says_nothing(gang):
    with gang.running(*FAST, "--behaviour", "silent") as programs:
        gang.reached(3)
        gang.ask("7")
        gang.reached(gang.steps(0)[-1] + 20)
        assert gang.answer(0) is None
        stop(programs)


def test_a_member_that_dies_is_met_again_at_the_last_common_checkpoint(gang):
    flags = (*FAST, "--steps", "150", "--checkpoint-every", "20")
    with gang.running(*flags) as programs:
        gang.reached(45)
        programs[1].signal(signal.SIGKILL)
        assert programs[1].wait() == 137
        soon(lambda: gang.events(0, "peer-lost"))
        with gang.member(1, *flags) as again:
            assert (programs[0].wait(), again.wait()) == (0, 0)
    resumed = gang.events(0, "resume")[-1]["step"]
    assert resumed >= 40
    assert resumed % 20 == 0
    assert gang.events(1, "resume")[-1]["step"] == resumed
    assert weights(gang)[0] == weights(gang)[1]


def test_rank_0_that_dies_is_met_again_too(gang):
    flags = (*FAST, "--steps", "100", "--checkpoint-every", "20")
    with gang.running(*flags) as programs:
        gang.reached(25)
        programs[0].signal(signal.SIGKILL)
        programs[0].wait()
        with gang.member(0, *flags) as again:
            assert (programs[1].wait(), again.wait()) == (0, 0)
    assert weights(gang)[0] == weights(gang)[1]


def test_one_that_ignores_sigterm_lives_until_sigkill(tmp_path):
    alone = Gang(tmp_path, members=1)
    with alone.running(*FAST, "--ignore-sigterm") as programs:
        alone.reached(3)
        programs[0].signal(signal.SIGTERM)
        alone.reached(alone.steps(0)[-1] + 10)
        programs[0].signal(signal.SIGKILL)
        assert programs[0].wait() == 137


def test_a_single_job_is_a_gang_of_one(tmp_path):
    alone = Gang(tmp_path, members=1)
    with alone.running(*FAST) as programs:
        alone.reached(3)
        alone.ask("7")
        step = alone.parked(7)[0]["step"]
        assert stop(programs) == [143]
    with alone.running(*FAST) as programs:
        alone.reached(step + 1)
        stop(programs)
    assert alone.events(0, "resume")[-1]["step"] == step


def test_gpus_that_are_not_there_are_missed_before_a_step(tmp_path):
    alone = Gang(tmp_path, members=1)
    with alone.running(*FAST, "--devices", "2") as programs:
        assert programs[0].wait() == 1
    assert "0 simulated GPU(s) in /dev, 2 required" in programs[0].log.read_text()
    assert alone.events(0) == []


def test_a_stranger_at_the_meeting_point_is_sent_away(gang):
    with gang.running(*SHORT[:2], "--steps", "30") as programs:
        assert [program.wait() for program in programs] == [0, 0]
    with gang.member(0, *SHORT) as leader:
        point = gang.volume / "gang/rendezvous.json"
        before = point.read_text()
        soon(lambda: point.read_text() != before)
        for said in ("nonsense", "[1]", '{"token": "guessed", "member": 1, "steps": []}'):
            place = json.loads(point.read_text())
            with socket.create_connection((place["address"], place["port"])) as stranger:
                stranger.sendall(said.encode() + b"\n")
                assert stranger.recv(9) == b""
        with gang.member(1, *SHORT) as member:
            assert (leader.wait(), member.wait()) == (0, 0)


def test_help_names_every_behaviour(tmp_path):
    gang = Gang(tmp_path)
    said = run(["python3", str(gang._app / "trainer.py"), "--help"], timeout=20).text
    said = "".join(said.split())
    assert all(word in said for word in ("no-park", "silent", "wrong-uid", "JOB_COMPLETION_INDEX"))
