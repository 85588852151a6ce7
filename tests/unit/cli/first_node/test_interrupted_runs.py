"""A first hour that is killed at any request to the API server: the next run puts back what was left."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.support.terminal import RigSession
from tests.unit.cli.first_node.conftest import IMAGE, NODE, first_node, own_pods, read_journal
from upgrader.cli.base import exit_codes
from upgrader.cli.first_node.report_folder import ReportFolder
from upgrader.cli.main import program
from upgrader.core.errors import UnreachableError
from upgrader.core.first_node.phases import FIRST


class KilledError(BaseException):
    """The process is killed: no code of it expects this."""


class DyingCluster:
    """The port to a cluster, and a process that is killed before its request number `at`; later requests fail too."""

    def __init__(self, cluster, at, die):
        self._cluster, self._left, self._die = cluster, at, die
        self.requests = []

    def __getattr__(self, name):
        method = getattr(self._cluster, name)

        async def call(*words, **named):
            self._left -= 1
            self.requests.append((name, words[0].kind if words and hasattr(words[0], "kind") else ""))
            if self._left == 0:
                self._die()
            if self._left <= 0:
                raise KilledError
            return await method(*words, **named)

        return call


class DyingSession(RigSession):
    def __init__(self, rig, at, die):
        super().__init__(rig)
        self.at, self.die = at, die
        self.survived = False

    @asynccontextmanager
    async def open(self):
        cluster = DyingCluster(self.rig.cluster, self.at, self.die)
        self.requests = cluster.requests
        yield replace(self.rig.context, cluster=cluster)
        self.survived = True


def kill(rig, folder, at, *words):
    """Run until request number `at`, and leave the files as they were then; whether the run was killed."""
    kept = folder.with_name("kept")

    def keep_files():
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)

    session = DyingSession(rig, at, keep_files)
    words = ["first-node", NODE, "--report", str(folder), "--image", IMAGE, *words]
    try:
        CliRunner().invoke(program, words, obj=session)
    except KilledError:
        shutil.rmtree(folder)
        kept.rename(folder)
    return not session.survived


def requests_of_a_run(rig, folder):
    """The requests of a whole run, as names of methods and kinds."""
    session = DyingSession(rig, 10_000, lambda: None)
    CliRunner().invoke(program, ["first-node", NODE, "--report", str(folder), "--image", IMAGE], obj=session)
    return session.requests


def test_a_run_that_is_killed_at_any_request_is_put_back_by_the_next(node, tmp_path):
    requests = requests_of_a_run(node, tmp_path / "counted")
    created = [at for at, request in enumerate(requests, 1) if request == ("create", "Pod")]
    assert len(created) == 2
    points = {*range(1, len(requests), 60), *(at + after for at in created for after in (0, 1, 2, 3))}
    with_pods = []
    for at in sorted(points):
        folder = tmp_path / f"report-{at}"
        assert kill(node, folder, at)
        with_pods += [at] * bool(own_pods(node))
        ended = first_node(node, folder)
        journal = read_journal(folder)
        assert (journal.left, own_pods(node)) == ((), []), at
        assert journal.completed == frozenset(FIRST), ended.output
    assert with_pods == [at + after for at in created for after in (1, 2, 3)]


def test_the_change_is_in_the_journal_before_it_is_made(node, tmp_path):
    seen = []
    node.before_end = lambda component: seen.append([change.name for change in read_journal(tmp_path).left])
    first_node(node, tmp_path)
    assert [[name.partition("-")[0] for name in names] for names in seen] == [["survey"], ["record"]]


def test_ctrl_c_puts_back_and_the_report_states_where_it_was(node, tmp_path):
    components = []

    def interrupt(component):
        components.append(component)
        if components == ["survey", "record"]:
            raise asyncio.CancelledError

    node.before_end = interrupt
    with pytest.raises(asyncio.CancelledError):
        first_node(node, tmp_path)
    journal = read_journal(tmp_path)
    assert [(run.phase, run.verdict.value) for run in journal.entries][-1] == (2, "interrupted")
    assert (journal.left, own_pods(node)) == ((), [])
    assert "| 2 Baseline | read-only | interrupted |" in (tmp_path / "report.md").read_text()


def test_what_cannot_be_put_back_is_an_error_and_stays_in_the_journal(node, tmp_path):
    def refuse_deletions(write):
        if write.verb == "delete":
            raise UnreachableError("the API server does not answer")

    node.cluster.before_write = refuse_deletions
    ended = first_node(node, tmp_path)
    assert (ended.exit_code, len(read_journal(tmp_path).left)) == (UnreachableError.exit_code, 1)
    assert "does not answer" in ended.output
    assert "## Not put back" in (tmp_path / "report.md").read_text()
    node.cluster.before_write = lambda write: None
    ended = first_node(node, tmp_path)
    assert "put back after an interrupted run: delete pod" in ended.output
    assert (read_journal(tmp_path).left, own_pods(node)) == ((), [])


def test_two_runs_in_one_folder_exclude_each_other(node, tmp_path):
    with ReportFolder(tmp_path).lock():
        ended = first_node(node, tmp_path)
    assert (ended.exit_code, "another run uses" in ended.output) == (1, True)
    assert first_node(node, tmp_path, "--go", "3").exit_code == exit_codes.DONE


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_folder_that_cannot_be_written_is_an_error(node, tmp_path, target):
    path = tmp_path / "report"
    path.mkdir() if target == "folder" else path.write_text("")
    (path / "private").write_text("") if target == "folder" else None
    ended = first_node(node, path)
    assert ended.exit_code in {1, exit_codes.USAGE}
    assert own_pods(node) == []
