"""A program in cgroups as boxes have them, of each version that this machine's kernel has mounted somewhere."""

import os

import pytest

from tests.support.leftovers import until
from upgrader.process import run
from upgrader.process.daemon import is_alive, reap_child, start_daemon
from upgrader_dev.devcluster.cgroups import ROOT
from upgrader_dev.devcluster.cgroups.version1 import SeparateCgroups
from upgrader_dev.devcluster.cgroups.version2 import UnifiedCgroups

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

BESIDE = ROOT / "unified"
"""Version 2 beside version 1: it has no controllers, and all the rest."""
UNSHARE = ("unshare", "-n")


@pytest.fixture(params=[1, 2])
def own(request):
    """The cgroups of one box; what is left of them in the end goes."""
    name = f"upg0-test-{os.getpid()}"
    separate = (ROOT / "memory").is_dir()
    if request.param == 1:
        made = SeparateCgroups(ROOT, name) if separate else None
    else:
        root = BESIDE if separate else ROOT
        made = UnifiedCgroups(root, name) if (root / "cgroup.controllers").exists() else None
    if made is None:
        pytest.skip(f"this machine has no cgroups of version {request.param}")
    made.create()
    yield made
    made.kill_all()
    made.remove()


@pytest.fixture
def program(own, tmp_path):
    """Its pid, and the file that it writes to all the time."""
    written = tmp_path / "written"
    words = own.enter_command(UNSHARE, ["sh", "-c", 'while :; do echo >>"$0"; done', str(written)])
    pid = start_daemon(words, log=tmp_path / "log")
    until(written.exists, (tmp_path / "log").read_text)
    yield pid, written
    run(["kill", "-KILL", str(pid)], timeout=10, check=False)
    reap_child(pid)


def test_its_namespace_begins_at_its_cgroups(own, program):
    seen = run(["nsenter", f"--target={program[0]}", "--cgroup", "cat", f"/proc/{program[0]}/cgroup"], timeout=10).text

    unified = isinstance(own, UnifiedCgroups)
    groups = [line.split(":")[2] for line in seen.splitlines() if line.startswith("0::") or not unified]
    assert set(groups) == ({"/init"} if unified else {"/"})


def test_what_is_frozen_does_nothing_until_it_is_thawed(own, program):
    _, written = program
    own.freeze()
    frozen = written.stat().st_size
    for _ in range(20):
        run(["true"], timeout=10)
    still = written.stat().st_size
    own.thaw()

    until(lambda: written.stat().st_size > frozen)
    assert still == frozen


def test_what_is_frozen_can_be_killed_and_its_cgroups_removed(own, program):
    pid, _ = program
    own.freeze()
    own.kill_all()
    run(["kill", "-KILL", str(pid)], timeout=10, check=False)

    until(lambda: not is_alive(pid))
    own.remove()
    assert not list(ROOT.glob(f"**/upg0-test-{os.getpid()}"))
