import contextlib
import os
import signal
import sys
import uuid

import pytest
import tenacity

from upgrader.process import ProgramMissingError
from upgrader.process.daemon import alive, children, collect, command_line, find, send, start, stopped


@pytest.fixture
def mark():
    return f"mark-{uuid.uuid4().hex}"


@pytest.fixture
def daemon(mark, tmp_path):
    pid = start(["sh", "-c", "echo said; echo wrong >&2; sleep 100", mark], log=tmp_path / "log")
    _until(lambda: [command_line(child) for child in children(pid)] == [("sleep", "100")])
    yield pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what outlived it
    _until(lambda: not alive(pid))
    collect(pid)


def test_found_by_its_command_line_and_by_nothing_less(daemon, mark):
    assert find(mark) == [daemon]
    assert find(mark, "sh") == [daemon]
    assert find(mark[:-1]) == []
    assert command_line(daemon)[-1] == mark


def test_both_outputs_are_appended_to_its_log(daemon, tmp_path):
    _until(lambda: (tmp_path / "log").read_text() == "said\nwrong\n")


def test_has_a_session_of_its_own(daemon):
    assert os.getsid(daemon) == daemon


def test_children_are_known(daemon):
    assert [command_line(child) for child in children(daemon)] == [("sleep", "100")]


def test_only_a_process_with_the_mark_is_signalled(daemon, mark):
    assert send(daemon, signal.SIGKILL, "another mark") is False
    assert alive(daemon)

    assert send(daemon, signal.SIGKILL, mark) is True

    _until(lambda: not alive(daemon))
    assert command_line(daemon) == ()
    assert find(mark) == []
    collect(daemon)
    assert send(daemon, signal.SIGKILL) is False


def test_it_is_stopped_when_all_its_threads_are(daemon):
    assert not stopped(daemon)
    send(daemon, signal.SIGSTOP)
    _until(lambda: stopped(daemon))
    send(daemon, signal.SIGCONT)
    _until(lambda: not stopped(daemon))
    assert not stopped(2**22), "no such process"


def test_found_as_soon_as_it_is_started(mark, tmp_path):
    pid = start([sys.executable, "-c", "import signal; signal.pause()", mark], log=tmp_path / "log")
    found = find(mark)
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not alive(pid))
    collect(pid)

    assert found == [pid]


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(ProgramMissingError):
        start(["no-such-program"], log=tmp_path / "log")


def test_a_program_that_ends_at_once_is_not_waited_for(tmp_path):
    pid = start(["true"], log=tmp_path / "log")

    _until(lambda: not alive(pid))
    collect(pid)
    collect(pid)


def _until(condition):
    retry = tenacity.retry_if_result(lambda held: not held)
    tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.01), stop=tenacity.stop_after_delay(10))(condition)
