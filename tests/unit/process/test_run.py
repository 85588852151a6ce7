import asyncio
import gc
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.support.leftovers import until
from tests.support.waiting import eventually
from upgrader.core.errors import ProcessError
from upgrader.process import ProgramFailedError, ProgramMissingError, ProgramTimeoutError, run
from upgrader.process.daemon import child_pids, is_alive
from upgrader.process.in_loop import run_async

FREEZER = Path("/sys/fs/cgroup/freezer")
STUBBORN = 'trap "" TERM; echo started; while :; do sleep 0.05; done'


def in_thread(words, **options):
    return run(words, **options)


def in_loop(words, **options):
    return asyncio.run(run_async(words, **options))


@pytest.fixture(params=[in_thread, in_loop], ids=["run", "run_async"])
def doing(request):
    """Both doors keep one promise."""
    return request.param


def sh(line):
    return ["sh", "-c", line]


def test_output_is_kept_whole_and_apart(doing):
    size = 3_000_000  # many times a pipe's buffer, on both streams at once
    line = f"import sys; sys.stdout.write('o' * {size}); sys.stderr.write('e' * {size})"

    finished = doing([sys.executable, "-c", line], timeout=30)

    assert (finished.code, finished.stdout, finished.stderr) == (0, b"o" * size, b"e" * size)


def test_input_is_fed_and_output_without_a_line_end_is_not_lost(doing):
    assert doing(["cat"], stdin=b"a\nb", timeout=10).stdout == b"a\nb"


def test_a_program_that_reads_no_input_is_no_error(doing):
    assert doing(["true"], stdin=b"x" * 1_000_000, timeout=10).code == 0


def test_text_is_standard_output_without_its_last_line_end(doing):
    assert doing(sh("printf 'a\\nb\\n\\n'"), timeout=10).text == "a\nb"


def test_directory_and_environment_are_the_callers(doing, tmp_path):
    finished = doing(sh("pwd; echo $ADDED; echo ${HOME:+home}"), timeout=10, cwd=tmp_path, env={"ADDED": "yes"})

    assert finished.text.splitlines() == [str(tmp_path), "yes", "home"]


def test_an_error_has_code_command_and_last_lines(doing):
    with pytest.raises(ProgramFailedError) as raised:
        doing(sh("echo out; echo why >&2; exit 7"), timeout=10)

    error = raised.value
    assert isinstance(error, ProcessError)
    assert (error.finished.code, error.finished.stdout, error.finished.stderr) == (7, b"out\n", b"why\n")
    assert error.brief == "`sh -c 'echo out; echo why >&2; exit 7'` ended with exit code 7"
    assert error.details == "out\nwhy"


def test_an_error_is_a_value_where_it_is_asked_for(doing):
    assert doing(sh("exit 7"), timeout=10, check=False).code == 7


def test_a_signal_is_written_as_the_shell_does(doing):
    assert doing(sh("kill -9 $$"), timeout=10, check=False).code == 137


def test_a_program_that_is_not_there(doing):
    with pytest.raises(ProgramMissingError, match="`no-such-program` cannot be started"):
        doing(["no-such-program", "x"], timeout=10)


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(doing, tmp_path):
    pids = tmp_path / "pids"

    with pytest.raises(ProgramTimeoutError, match=r"did not end within 0\.5 s") as raised:
        doing(sh(f"echo before; sleep 100 & echo $! $$ > {pids}; wait"), timeout=0.5)

    assert raised.value.finished.stdout == b"before\n"
    # An ended process closes its pipes before it is gone: on a busy machine it is seen in between.
    until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


def test_a_program_that_ignores_sigterm_is_killed(doing):
    with pytest.raises(ProgramTimeoutError) as raised:
        doing(sh(STUBBORN), timeout=0.3)

    assert raised.value.finished.code == 137
    assert raised.value.finished.stdout == b"started\n"


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs root and the freezer of cgroup v1")
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_program_that_no_signal_ends_does_not_hang_the_caller():
    """A frozen process is in an uninterruptible sleep, as one that removes a kernel module that hangs."""
    group = FREEZER / f"upgrader-test-{os.getpid()}"
    group.mkdir()
    try:
        with pytest.raises(ProgramTimeoutError) as raised:
            run(sh(f"echo $$ > {group}/cgroup.procs; echo FROZEN > {group}/freezer.state"), timeout=0.5)
        assert raised.value.finished.code == 137
        del raised
        gc.collect()  # of the process, which is still running
        assert (group / "cgroup.procs").read_text()
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_child_that_keeps_the_pipe_open_counts_as_not_ended(doing):
    with pytest.raises(ProgramTimeoutError):
        doing(sh("sleep 100 & echo gone"), timeout=0.5)


def test_a_child_that_left_the_group_with_the_pipe_does_not_hang_the_caller(doing, tmp_path):
    pid = tmp_path / "pid"
    line = f"setsid sh -c 'echo $$ > {pid}; exec sleep 100' & until test -s {pid}; do :; done; echo said"

    with pytest.raises(ProgramTimeoutError) as raised:
        doing(sh(line), timeout=1)

    assert raised.value.finished.stdout == b"said\n"
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_secrets_are_not_in_errors_but_reach_the_program(doing):
    with pytest.raises(ProgramFailedError) as raised:
        doing(["sh", "-c", "echo $1 >&2; exit 1", "x", "hunter2"], timeout=10, secrets=["hunter2"])

    assert raised.value.finished.stderr == b"hunter2\n"
    assert "hunter2" not in str(raised.value)
    assert "***" in str(raised.value)


def test_lines_are_told_while_the_program_runs(tmp_path):
    told = threading.Event()
    go_on = tmp_path / "go-on"
    lines = []

    def on_line(line):
        lines.append(line)
        go_on.touch()
        told.set()

    run(
        sh(f"echo first >&2; until test -e {go_on}; do sleep 0.01; done; echo -n second >&2"),
        timeout=10,
        on_line=on_line,
    )

    assert told.is_set()
    assert lines == ["first", "second"]


async def test_a_cancelled_caller_takes_the_program_with_it(tmp_path):
    pid = tmp_path / "pid"
    running = asyncio.create_task(run_async(sh(f"echo $$ > {pid}; sleep 100"), timeout=60))
    await eventually(lambda: asyncio.to_thread(lambda: pid.exists() and pid.read_text()))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not is_alive(int(pid.read_text()))


def test_paths_are_words(doing):
    assert doing([Path("/bin/echo"), Path("/a b")], timeout=10).text == "/a b"


def test_nothing_of_a_program_is_left_as_a_zombie(doing):
    before = child_pids(os.getpid())

    doing(["true"], timeout=10)

    assert child_pids(os.getpid()) == before
