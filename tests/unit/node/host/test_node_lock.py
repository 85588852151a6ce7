"""That two upgrades never work on one node at the same time, with real processes and the real lock."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.node_world import NodeWorld
from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, UpgradeOrder
from upgrader.node.host.node_lock import hold_node_lock
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun
from upgrader.process.daemon import is_alive, start_daemon
from upgrader.process.waiting import wait_until_true

HOLDER = """
import signal
import sys
from pathlib import Path
from upgrader.node.host.clock import MonotonicClock
from upgrader.node.host.node_lock import hold_node_lock
from upgrader.node.host.host import Host

with hold_node_lock(Host(Path(sys.argv[1])), sys.argv[2], MonotonicClock()):
    print("holds", flush=True)
    signal.pause()
"""


@contextmanager
def held_by_another(root: Path, upgrade: str) -> Iterator[int]:
    """The pid of another process that holds the node of this folder until it is killed."""
    log = root.parent / f"{upgrade}.log"
    pid = start_daemon([sys.executable, "-c", HOLDER, root, upgrade], log=log)
    try:
        assert wait_until_true(lambda: "holds" in log.read_text(), seconds=60, every=0.05), log.read_text()
        yield pid
    finally:
        end(pid)


def end(pid: int) -> None:
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run(world: NodeWorld, upgrade: str = "back") -> OrderResult:
    order = UpgradeOrder(upgrade=upgrade, unload=NodeDriver(vendor="sim", version="1.0.0"))
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def test_a_node_upgrade_touches_nothing_while_another_process_upgrades_the_node_and_names_it(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    with held_by_another(world.host.root, "there") as other:
        before = world.files()
        with pytest.raises(OrderFailedError) as caught:
            run(world)
        assert (world.files(), world.loaded(), world.programs.calls) == (before, True, 0)
    assert caught.value.reason is Reason.OCCUPIED
    assert str(caught.value).startswith(
        f"another process works on this node: upgrade there (pid {other}), which holds "
        "/var/lib/gpu-upgrader/upgrade.lock; nothing was changed."
    )


def test_the_same_upgrade_goes_on_when_the_other_process_was_killed(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    with held_by_another(world.host.root, "there") as other:
        end(other)
        assert run(world).reason is Reason.DONE
    assert not world.loaded()


def test_a_node_upgrade_waits_for_a_process_that_is_ending(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)

    class Ending:
        """The other process ends while time passes."""

        def __init__(self, other: int) -> None:
            self.other = other

        def monotonic(self) -> float:
            return world.clock.monotonic()

        def wait(self, seconds: float) -> None:
            world.clock.wait(seconds)
            end(self.other)

    with held_by_another(world.host.root, "there") as other, hold_node_lock(world.host, "back", Ending(other)):
        assert "upgrade back" in (world.host.state / "upgrade.lock").read_text()


def test_the_lock_is_released_when_the_upgrade_is_over(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    assert run(world, "there").reason is Reason.DONE
    with held_by_another(world.host.root, "next") as other:
        assert is_alive(other)
