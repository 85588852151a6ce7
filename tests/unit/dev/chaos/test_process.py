"""When the steps of a simulated controller process are due, as those of a real one."""

from upgrader_dev.chaos.process import LoopSchedule
from upgrader_dev.simulated.cluster.ports import FakeClock

KEY = ("GpuStack", "pool-a")


def test_a_loop_that_is_woken_in_its_last_step_has_another():
    """A stack that is gone when it is read, and is made again before the step is over."""
    clock = FakeClock()
    loops = LoopSchedule(clock)
    loops.wake(*KEY)
    assert loops.take_due() == [KEY]
    loops.wake(*KEY)
    loops.record_success(KEY, None)
    clock.advance(1)
    assert loops.take_due() == [KEY]
    loops.record_success(KEY, None)
    clock.advance(60)
    assert loops.take_due() == []


def test_a_step_that_may_wait_is_due_when_its_time_is_up():
    clock = FakeClock()
    loops = LoopSchedule(clock)
    loops.wake(*KEY)
    assert loops.take_due() == [KEY]
    loops.wake(*KEY, within=5)
    loops.record_success(KEY, 15)
    clock.advance(4)
    assert loops.take_due() == []
    clock.advance(1)
    assert loops.take_due() == [KEY]
