"""A visit that is killed at any line, any number of times, and run again comes to the end of one that was not.

The kill is an exception raised by a trace function before a chosen line of upgrader.node runs: what SIGKILL leaves
between two lines is what is left here.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.node_world import BINARY, Behaviour, NodeWorld
from upgrader.core.orders import Driver, KubeletTarget, OrderResult, Reason, VisitOrder
from upgrader.node.outcome import OrderFailedError
from upgrader.node.visit import Visit

KILLABLE = tuple(f"/node/{name}.py" for name in ("visit", "records", "durable", "driver"))
ORDER = VisitOrder(
    visit="v",
    unload=Driver(vendor="sim", version="1.0.0"),
    kubelet=KubeletTarget(version="1.35.4", binary=BINARY),
)
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of visits sync a lot
# Killed between the last line of a `with` and its end, a file stays open until it is collected; that is no fault.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
WELL = Behaviour(version="1.35.4")
SICK = Behaviour(version="1.35.4", healthy=False)
DEAD = Behaviour(version="1.35.4", starts=False)


class Killed(BaseException):
    """Nothing catches it."""


class Killer:
    """Counts the lines of the code under test, and raises at the one it is told."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.lines = 0

    def run(self, act: Callable[[], OrderResult]) -> OrderResult:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return act()
        finally:
            sys.settrace(before)

    def _trace(self, frame, event, _argument):
        if not frame.f_code.co_filename.endswith(KILLABLE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise Killed
        return self._trace


def visit(world: NodeWorld) -> OrderResult:
    return Visit(ORDER, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def end(world: NodeWorld, result: OrderResult) -> tuple[object, ...]:
    """What must be the same at the end, however it was come to."""
    kept = world.host.state / "kubelet" / "previous" / "kubelet"
    return (
        result.reason,
        world.loaded(),
        world.installed(),
        world.runs(),
        world.kubelet.version(kept),
        sorted(path for path in world.files() if "upgrader-new" not in path),
    )


def lines_of(new: Behaviour) -> int:
    killer = Killer(None)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new)
        killer.run(lambda: visit(world))
    return killer.lines


def whole(new: Behaviour) -> tuple[object, ...]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new)
        return end(world, visit(world))


@pytest.mark.parametrize("new", [WELL, DEAD], ids=["done", "restored"])
def test_killed_once_at_each_line(new):
    expected = whole(new)
    lines = lines_of(new)
    assert lines > 150  # it really goes through the code
    for at in [*range(1, 150), *range(150, lines + 1, 7)]:  # later ones are rounds of waiting
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            world = NodeWorld(Path(folder), new=new)
            with pytest.raises(Killed):
                Killer(at).run(lambda world=world: visit(world))
            assert end(world, visit(world)) == expected, f"killed at line event {at} of {lines}"


@examples(40)
@given(new=st.sampled_from([WELL, SICK, DEAD]), kills=st.lists(st.integers(1, 400), max_size=6))
def test_killed_again_and_again(new, kills):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new)
        for at in kills:
            try:
                Killer(at).run(lambda: visit(world))
            except Killed:
                continue
        assert end(world, visit(world)) == whole(new)


@given(kills=st.lists(st.integers(1, 200), min_size=1, max_size=4), pause=st.floats(0.1, 90))
@examples(40)
def test_a_kubelet_that_becomes_sick_between_two_runs_is_put_back_or_lost_but_never_called_well(kills, pause):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder))
        for at in kills:
            try:
                Killer(at).run(lambda: visit(world))
            except Killed:
                world.clock.wait(pause)
        before = (world.host.state / "visits" / "v.json").exists()
        world.kubelet.api_away = True
        try:
            reason = visit(world).reason
        except OrderFailedError as error:
            reason = error.reason
        assert before or reason is Reason.KUBELET_RESTORED
