import contextlib
import os
import signal
import sys
import uuid

import pytest
import tenacity

from upgrader.process import ProgramMissingError
from upgrader.process.daemon import (
    child_pids,
    command_line,
    find_processes,
    is_alive,
    is_stopped,
    reap_child,
    send_signal,
    start_daemon,
)


@pytest.fixture
def mark():
    return f"mark-{uuid.uuid4().hex}"


@pytest.fixture
def daemon(mark, tmp_path):
    pid = start_daemon(["sh", "-c", "echo said; echo wrong >&2; sleep 100", mark], log=tmp_path / "log")
    _until(lambda: [command_line(child) for child in child_pids(pid)] == [("sleep", "100")])
    yield pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what outlived it
    _until(lambda: not is_alive(pid))
    reap_child(pid)


def test_found_by_its_command_line_and_by_nothing_less(daemon, mark):
    assert find_processes(mark) == [daemon]
    assert find_processes(mark, "sh") == [daemon]
    assert find_processes(mark[:-1]) == []
    assert command_line(daemon)[-1] == mark


def test_both_outputs_are_appended_to_its_log(daemon, tmp_path):
    _until(lambda: (tmp_path / "log").read_text() == "said\nwrong\n")


def test_has_a_session_of_its_own(daemon):
    assert os.getsid(daemon) == daemon


def test_children_are_known(daemon):
    assert [command_line(child) for child in child_pids(daemon)] == [("sleep", "100")]


def test_only_a_process_with_the_mark_is_signalled(daemon, mark):
    assert send_signal(daemon, signal.SIGKILL, "another mark") is False
    assert is_alive(daemon)

    assert send_signal(daemon, signal.SIGKILL, mark) is True

    _until(lambda: not is_alive(daemon))
    assert command_line(daemon) == ()
    assert find_processes(mark) == []
    reap_child(daemon)
    assert send_signal(daemon, signal.SIGKILL) is False


def test_it_is_stopped_when_all_its_threads_are(daemon):
    assert not is_stopped(daemon)
    send_signal(daemon, signal.SIGSTOP)
    _until(lambda: is_stopped(daemon))
    send_signal(daemon, signal.SIGCONT)
    _until(lambda: not is_stopped(daemon))
    assert not is_stopped(2**22), "no such process"


def test_found_as_soon_as_it_is_started(mark, tmp_path):
    pid = start_daemon([sys.executable, "-c", "import signal; signal.pause()", mark], log=tmp_path / "log")
    found = find_processes(mark)
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not is_alive(pid))
    reap_child(pid)

    assert found == [pid]


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(ProgramMissingError):
        start_daemon(["no-such-program"], log=tmp_path / "log")


def test_a_program_that_ends_at_once_is_not_waited_for(tmp_path):
    pid = start_daemon(["true"], log=tmp_path / "log")

    _until(lambda: not is_alive(pid))
    reap_child(pid)
    reap_child(pid)


def _until(condition):
    retry = tenacity.retry_if_result(lambda held: not held)
    tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.01), stop=tenacity.stop_after_delay(10))(condition)
