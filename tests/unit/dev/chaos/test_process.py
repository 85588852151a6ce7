"""When the steps of a simulated controller process are due, as those of a real one."""

from upgrader_dev.chaos.process import Loops
from upgrader_dev.simulated.cluster.ports import FakeClock

KEY = ("GpuStack", "pool-a")


def test_a_loop_that_is_woken_in_its_last_step_has_another():
    """A stack that is gone when it is read, and is made again before the step is over."""
    clock = FakeClock()
    loops = Loops(clock)
    loops.wake(*KEY)
    assert loops.due() == [KEY]
    loops.wake(*KEY)
    loops.went(KEY, None)
    clock.advance(1)
    assert loops.due() == [KEY]
    loops.went(KEY, None)
    clock.advance(60)
    assert loops.due() == []


def test_a_step_that_may_wait_is_due_when_its_time_is_up():
    clock = FakeClock()
    loops = Loops(clock)
    loops.wake(*KEY)
    assert loops.due() == [KEY]
    loops.wake(*KEY, within=5)
    loops.went(KEY, 15)
    clock.advance(4)
    assert loops.due() == []
    clock.advance(1)
    assert loops.due() == [KEY]
