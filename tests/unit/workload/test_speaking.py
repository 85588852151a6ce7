"""What workload.py offers to jobs that are asked by HTTP or by exec: real requests, a real process."""

import http.client
import json
import os
import sys

import pytest

from tests.support.programs import soon, started
from tests.support.repository import ROOT
from upgrader.workload import CheckpointListener, serve


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.setenv("POD_UID", "uid-1")
    return CheckpointListener(requests=tmp_path, answers=tmp_path, exit_on_sigterm=False)


@pytest.fixture
def call(tmp_path, listener):
    server = serve(0, folder=tmp_path)

    def request(method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request(method, path, None if body is None else json.dumps(body))
        with connection.getresponse() as answer:
            text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    yield request
    server.shutdown()
    server.server_close()


ASKED = {"requestId": 7, "parkSeconds": 60, "podUid": "uid-1"}


def test_a_whole_request_by_http(call, listener):
    assert call("GET", "/checkpoint") == (204, None)
    assert call("POST", "/checkpoint", ASKED) == (202, None)
    assert (listener.requested(), listener.park_seconds()) == (7, 60.0)
    listener.acknowledge(7, 12, "/data/c")
    said = {"requestId": 7, "podUid": "uid-1", "step": 12, "uri": "/data/c", "parked": False}
    assert call("GET", "/checkpoint") == (200, said)
    listener.progress(13)
    assert call("GET", "/checkpoint/progress") == (200, {"step": 13, "podUid": "uid-1"})
    assert call("POST", "/checkpoint", ASKED) == (202, None), "asked again under the same number"
    assert listener.requested() is None, "which is no other request"
    assert call("DELETE", "/checkpoint?requestId=6") == (204, None), "that of an earlier asking"
    assert listener.park_seconds() == 60.0
    assert call("DELETE", "/checkpoint?requestId=7") == (204, None)
    assert listener.park(7) == "withdrawn"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**ASKED, "podUid": "uid-2"}, 421),
        ({**ASKED, "requestId": "seven"}, 400),
        ({"requestId": 7}, 400),
        ("seven", 400),
        ([], 400),
    ],
)
def test_what_is_not_meant_for_this_pod_or_cannot_be_read_asks_nobody(call, listener, body, status):
    assert call("POST", "/checkpoint", body)[0] == status
    assert listener.requested() is None


def test_other_paths_are_not_there(call, listener):
    assert call("POST", "/else", ASKED) == (404, None)
    assert call("GET", "/else") == (404, None)
    assert call("DELETE", "/checkpoint?requestId=all") == (400, None)
    assert listener.requested() is None


def run(folder, tmp_path, **env):
    """The command as a container runs it: its exit code and what it printed."""
    imports = f"import sys; sys.path[:0] = ['{ROOT / 'upgrader'}']; import workload"
    script = f"{imports}; sys.exit(workload.run_command(r'{folder}'))"
    log = tmp_path / "log"
    variables = {
        "CHECKPOINT_REQUEST": "7",
        "CHECKPOINT_PARK_SECONDS": "60",
        "CHECKPOINT_POD_UID": "uid-1",
        "POD_UID": "uid-1",
        **{f"CHECKPOINT_{name.upper()}": value for name, value in env.items()},
    }
    log.unlink(missing_ok=True)
    with started([sys.executable, "-c", script], log=log, env={**os.environ, **variables}) as program:
        code = program.wait()
    soon(log.exists)
    return code, log.read_text()


def test_a_whole_request_by_a_command(tmp_path, listener):
    assert run(tmp_path, tmp_path, action="answer") == (0, "")
    assert run(tmp_path, tmp_path, action="request") == (0, "")
    assert listener.requested() == 7
    listener.acknowledge(7, 12, "/data/c")
    listener.progress(13)
    code, text = run(tmp_path, tmp_path, action="answer")
    assert (code, json.loads(text)["step"]) == (0, 12)
    code, text = run(tmp_path, tmp_path, action="progress")
    assert (code, json.loads(text)["step"]) == (0, 13)
    assert run(tmp_path, tmp_path, action="withdraw") == (0, "")
    assert listener.park_seconds() == 60.0
    assert (tmp_path / "checkpoint-request").read_text() == ""


def test_a_command_for_another_pod_or_another_thing_does_nothing(tmp_path, listener):
    assert run(tmp_path, tmp_path, action="request", pod_uid="uid-2")[0] == 1
    assert run(tmp_path, tmp_path, action="dance")[0] == 2
    assert listener.requested() is None
