import base64

import pytest

from tests.support.speaking_socket import line, speaking
from upgrader.core.errors import DevClusterError
from upgrader.process import ProgramFailedError, ProgramTimeoutError
from upgrader_dev.devcluster.virtual.agent import Agent
from upgrader_dev.devcluster.virtual.json_lines import Messages, SilentError, make_request
from upgrader_dev.devcluster.virtual.monitor import Monitor

GREETING = line({"QMP": {"version": {}, "capabilities": []}})


def test_messages_come_in_any_pieces():
    whole = line({"return": {}}) + line({"event": "RESET"}) + b'{"return":'
    pieces = Messages()

    seen = [message for index in range(len(whole)) for message in pieces.split_lines(whole[index : index + 1])]

    assert seen == [{"return": {}}, {"event": "RESET"}]
    assert list(pieces.split_lines(b" 3}\n")) == [{"return": 3}]


def test_what_stands_before_a_sentinel_is_of_another_conversation():
    assert list(Messages().split_lines(b'{"half": \xff{"return": 7}\n')) == [{"return": 7}]


def test_a_request_is_one_line():
    assert make_request("stop") == b'{"execute":"stop"}\n'
    assert make_request("x", {"a": 1}, synchronised=True) == b'\xff{"execute":"x","arguments":{"a":1}}\n'


def test_the_monitor_keeps_events_that_come_before_their_time(tmp_path):
    def answer(asked):
        event = line({"event": "RESET", "data": {"guest": True}}) if asked["execute"] == "stop" else b""
        return event + line({"return": {}})

    with speaking(tmp_path / "s", answer, GREETING) as heard, Monitor(tmp_path / "s", 5) as monitor:
        assert monitor.run_command("stop") == {}
        monitor.wait_for("RESET")

    assert [each["execute"] for each in heard] == ["qmp_capabilities", "stop"]


def test_a_refusal_has_qemus_own_words(tmp_path):
    def answer(asked):
        refused = {"error": {"class": "GenericError", "desc": "no such thing"}}
        return line(refused if asked["execute"] == "jump" else {"return": {}})

    with (
        speaking(tmp_path / "s", answer, GREETING),
        Monitor(tmp_path / "s", 5) as monitor,
        pytest.raises(DevClusterError, match="jump failed") as raised,
    ):
        monitor.run_command("jump")

    assert raised.value.details == "no such thing"


def test_who_is_not_there_or_says_nothing(tmp_path):
    with pytest.raises(SilentError, match="no process listens at"), Monitor(tmp_path / "s", 5):
        pass
    with (
        speaking(tmp_path / "s", lambda _asked: b""),
        pytest.raises(SilentError, match=r"no response from .* within 0\.1 s"),
        Monitor(tmp_path / "s", 0.1),
    ):
        pass


def test_a_path_too_long_for_a_socket_is_said_to_be(tmp_path):
    with pytest.raises(DevClusterError, match="must not exceed 107 bytes"):
        Monitor(tmp_path / ("x" * 120))


class Guest:
    """An agent that runs one program; it is asked `looks` times before that has ended."""

    def __init__(self, told, looks=1, before=b""):
        self.told = told
        self.looks = looks
        self.before = before

    def __call__(self, asked):
        match asked["execute"]:
            case "guest-sync-delimited":
                return self.before + b"\xff" + line({"return": asked["arguments"]["id"]})
            case "guest-exec":
                return line({"return": {"pid": 42}})
            case _:
                self.looks -= 1
                return line({"return": {"exited": self.looks <= 0, **(self.told if self.looks <= 0 else {})}})


def encoded(text):
    return base64.b64encode(text).decode()


def test_a_program_has_ended_when_there_is_an_exit_code(tmp_path):
    guest = Guest({"exitcode": 3, "out-data": encoded(b"out"), "err-data": encoded(b"err")}, looks=3)

    with speaking(tmp_path / "s", guest) as heard:
        ended = Agent(tmp_path / "s").run(["sh", "-c", "x"], 5, check=False, stdin=b"in")

    assert (ended.code, ended.stdout, ended.stderr) == (3, b"out", b"err")
    assert heard[1] == {
        "execute": "guest-exec",
        "arguments": {"path": "sh", "arg": ["-c", "x"], "capture-output": True, "input-data": encoded(b"in")},
    }
    assert [each["execute"] for each in heard[2:]] == ["guest-exec-status"] * 3


def test_a_response_to_another_request_is_ignored(tmp_path):
    guest = Guest({"exitcode": 0, "out-data": encoded(b"own")}, before=line({"return": 5}) + line({"return": {}}))

    with speaking(tmp_path / "s", guest):
        assert Agent(tmp_path / "s").run(["x"], 5).text == "own"


def test_a_program_that_fails_or_was_killed(tmp_path):
    with (
        speaking(tmp_path / "s", Guest({"exitcode": 1})),
        pytest.raises(ProgramFailedError, match="ended with exit code 1"),
    ):
        Agent(tmp_path / "s").run(["x"], 5)
    with speaking(tmp_path / "t", Guest({"signal": 9})):
        assert Agent(tmp_path / "t").run(["x"], 5, check=False).code == 137


def test_a_program_that_does_not_end_is_killed(tmp_path):
    with (
        speaking(tmp_path / "s", Guest({}, looks=10**6)) as heard,
        pytest.raises(ProgramTimeoutError, match=r"did not end within 0\.2 s"),
    ):
        Agent(tmp_path / "s").run(["sleep", "9"], 0.2)

    assert heard[-1]["arguments"] == {"path": "kill", "arg": ["-KILL", "42"]}


def test_output_that_was_cut_off_is_no_output(tmp_path):
    guest = Guest({"exitcode": 0, "out-data": encoded(b"beginn"), "out-truncated": True})

    with speaking(tmp_path / "s", guest), pytest.raises(DevClusterError, match="wrote more output than"):
        Agent(tmp_path / "s").run(["x"], 5)
