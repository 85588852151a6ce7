"""The supervisor runs in a process of its own: it takes all children and signals of the process that it runs in."""

import os
import signal
import sys
from pathlib import Path

import pytest
import tenacity

from upgrader.process.daemon import child_pids, command_line, is_alive, reap_child, start_daemon

SUPERVISOR = """
import sys
from pathlib import Path
from upgrader.process.supervise import SupervisedProgram, Supervisor

folder = Path(sys.argv[1])
supervisor = Supervisor(holds=folder / "holds", journal=folder / "journal")
line = f"echo $WHO; ! test -e {folder}/left-behind || (sleep 0.1 & echo orphan $!); exec sleep 100"
supervisor.add(SupervisedProgram(name="a", words=("sh", "-c", line), log=str(folder / "a.log"), env={"WHO": "me"}))
reached = supervisor.run_until((folder / "go-on").exists, 20)
supervisor.add(SupervisedProgram(name="b", words=("sleep", "200"), log=str(folder / "b.log")))
(folder / "reached.new").write_text(str(reached))
(folder / "reached.new").rename(folder / "reached")
supervisor.run()
"""


@pytest.fixture
def supervisor(tmp_path):
    (tmp_path / "holds").mkdir()
    pid = start_daemon([sys.executable, "-c", SUPERVISOR, tmp_path], log=tmp_path / "log")
    _until(lambda: (tmp_path / "journal").exists() and "a started" in (tmp_path / "journal").read_text())
    yield pid
    if is_alive(pid):
        os.killpg(pid, signal.SIGKILL)
        _until(lambda: not is_alive(pid))
    reap_child(pid)


def test_a_program_runs_with_its_environment_and_log(supervisor, tmp_path):
    _until(lambda: _programs(supervisor) == {("sleep", "100")})

    assert (tmp_path / "a.log").read_text() == "me\n"


def test_a_program_that_ends_is_started_again_and_the_journal_says_so(supervisor, tmp_path):
    _until(lambda: _programs(supervisor) == {("sleep", "100")})
    first = child_pids(supervisor)[0]

    os.kill(first, signal.SIGKILL)

    _until(lambda: (tmp_path / "journal").read_text().count("started") == 2)
    assert child_pids(supervisor) != [first]
    said = [line.split(maxsplit=1)[1].rpartition(" ")[0] for line in (tmp_path / "journal").read_text().splitlines()]
    assert said == ["a started: pid", "a ended:", "a started: pid"]


def test_a_held_program_stays_away_until_it_is_released(supervisor, tmp_path):
    _until(lambda: _programs(supervisor) == {("sleep", "100")})
    (tmp_path / "holds" / "a").touch()

    os.kill(child_pids(supervisor)[0], signal.SIGTERM)

    _until(lambda: "a ended: 143" in (tmp_path / "journal").read_text())
    os.kill(supervisor, signal.SIGHUP)  # one more look at what is due
    assert _programs(supervisor) == set()
    (tmp_path / "holds" / "a").unlink()
    _until(lambda: _programs(supervisor) == {("sleep", "100")})


def test_programs_are_kept_running_while_it_waits_for_a_condition(supervisor, tmp_path):
    _until(lambda: _programs(supervisor) == {("sleep", "100")})
    assert not (tmp_path / "reached").exists()

    (tmp_path / "go-on").touch()

    _until(lambda: _programs(supervisor) == {("sleep", "100"), ("sleep", "200")})
    _until((tmp_path / "reached").exists)
    assert (tmp_path / "reached").read_text() == "True"


def test_sigterm_ends_it_with_what_it_started(supervisor, tmp_path):
    (tmp_path / "go-on").touch()
    _until(lambda: len(_programs(supervisor)) == 2)
    started = child_pids(supervisor)

    os.kill(supervisor, signal.SIGTERM)

    _until(lambda: not is_alive(supervisor))
    assert not any(is_alive(pid) for pid in started)


def test_orphans_are_collected(tmp_path):
    # only process 1 of a namespace is given orphans, so this one asks for those of its descendants (prctl 36)
    code = f"import ctypes; ctypes.CDLL(None).prctl(36, 1)\n{SUPERVISOR}"
    (tmp_path / "holds").mkdir()
    (tmp_path / "left-behind").touch()
    reaper = start_daemon([sys.executable, "-c", code, tmp_path], log=tmp_path / "log")
    try:
        _until(lambda: (tmp_path / "a.log").exists() and "orphan" in (tmp_path / "a.log").read_text())
        orphan = int((tmp_path / "a.log").read_text().split()[-1])
        _until(lambda: not Path(f"/proc/{orphan}").exists())
        assert _programs(reaper) == {("sleep", "100")}
    finally:
        os.killpg(reaper, signal.SIGKILL)
        _until(lambda: not is_alive(reaper))
        reap_child(reaper)


def _programs(supervisor):
    return {command_line(pid) for pid in child_pids(supervisor)}


def _until(condition):
    retry = tenacity.retry_if_result(lambda held: not held)
    tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.01), stop=tenacity.stop_after_delay(15))(condition)
