"""That no program changes packages of the node during an upgrade, with real processes and locks as dpkg takes them."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.node_world import NodeWorld
from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, UpgradeOrder
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.package_lock import LOCK_FILE, LOCK_SECONDS, hold_package_lock
from upgrader.node.upgrade.upgrade import UpgradeRun
from upgrader.process import run as run_program
from upgrader.process.daemon import is_alive, start_daemon
from upgrader.process.waiting import wait_until_true

APT = """
import fcntl, os, signal, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o640)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("holds", flush=True)
if sys.argv[2:]:
    signal.pause()
"""
"""How apt locks the file; with a further argument it holds the lock until it is killed."""


@pytest.fixture
def world(tmp_path: Path) -> NodeWorld:
    made = NodeWorld(tmp_path)
    made.host.path("/var/lib/dpkg").mkdir(parents=True)
    return made


@contextmanager
def held_by_apt(world: NodeWorld) -> Iterator[int]:
    """The pid of a process that holds the lock until it is killed."""
    log = world.host.root.parent / "apt.log"
    pid = start_daemon([sys.executable, "-c", APT, world.host.path(LOCK_FILE), "hold"], log=log)
    try:
        assert wait_until_true(lambda: "holds" in log.read_text(), seconds=60, every=0.05), log.read_text()
        yield pid
    finally:
        end(pid)


def end(pid: int) -> None:
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def apt_is_refused(world: NodeWorld) -> bool:
    """Whether another process cannot take the lock at this moment."""
    ended = run_program([sys.executable, "-c", APT, world.host.path(LOCK_FILE)], timeout=60, check=False)
    assert (ended.code == 0) == (ended.text.strip() == "holds")
    return ended.code != 0


def run(world: NodeWorld) -> OrderResult:
    order = UpgradeOrder(upgrade="a", unload=NodeDriver(vendor="sim", version="1.0.0"))
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def test_no_package_is_changed_while_an_upgrade_changes_the_node(world: NodeWorld) -> None:
    refused = []
    unload = world.programs.run

    def run_and_look(words: list[str], *, seconds: float, env: dict[str, str] | None = None) -> object:
        refused.append(apt_is_refused(world))
        return unload(words, seconds=seconds, env=env)

    world.programs.run = run_and_look  # type: ignore[method-assign]
    assert run(world).reason is Reason.DONE
    assert (refused, apt_is_refused(world)) == ([True], False)


def test_the_lock_is_released_when_the_upgrade_fails(world: NodeWorld) -> None:
    world.programs.holders = ["pid 7 (trainer)"]
    with pytest.raises(OrderFailedError, match="is in use"):
        run(world)
    assert not apt_is_refused(world)


def test_an_upgrade_waits_for_a_program_that_changes_packages_and_names_it(world: NodeWorld) -> None:
    with held_by_apt(world) as apt:
        (world.host.root / f"proc/{apt}").mkdir(parents=True)
        (world.host.root / f"proc/{apt}/comm").write_text("apt-get\n")
        world.host.proc = world.host.root / "proc"
        began = world.clock.now
        with pytest.raises(OrderFailedError) as caught:
            run(world)
        assert (world.loaded(), world.programs.calls, world.clock.now - began) == (True, 0, LOCK_SECONDS)
    assert caught.value.reason is Reason.OCCUPIED
    assert str(caught.value) == (
        f"packages of the node are being changed: pid {apt} (apt-get) holds /var/lib/dpkg/lock-frontend. This run has "
        "changed nothing; the upgrade continues when that process ends"
    )


def test_an_upgrade_continues_when_the_program_has_ended(world: NodeWorld) -> None:
    class Ending:
        """The other process ends while time passes."""

        def monotonic(self) -> float:
            return world.clock.monotonic()

        def wait(self, seconds: float) -> None:
            world.clock.wait(seconds)
            end(apt)

    with held_by_apt(world) as apt, hold_package_lock(world.host, Ending()):
        assert apt_is_refused(world)


def test_a_node_without_dpkg_has_no_lock(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    assert run(world).reason is Reason.DONE
    assert not world.host.path(LOCK_FILE).exists()


def test_a_file_that_is_no_lock_stops_the_upgrade(world: NodeWorld) -> None:
    world.host.path(LOCK_FILE).mkdir()
    with pytest.raises(OrderFailedError) as caught:
        run(world)
    assert (caught.value.reason, str(caught.value), world.loaded()) == (
        Reason.MISSING,
        f"{LOCK_FILE} on the node cannot be locked, so its packages could change: Is a directory",
        True,
    )


def test_the_lock_follows_links_of_the_node(tmp_path: Path) -> None:
    host = Host(root=tmp_path)
    (tmp_path / "usr/share/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg").symlink_to("/usr/share/dpkg")
    with hold_package_lock(host, NodeWorld(tmp_path / "other").clock):
        assert (tmp_path / "usr/share/dpkg/lock-frontend").is_file()
