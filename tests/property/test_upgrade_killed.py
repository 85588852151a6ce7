"""A node upgrade that is killed at any line, any number of times, and run again comes to the end of one that was not.

The kill is an exception raised by a trace function before a chosen line of upgrader.node runs: what SIGKILL leaves
between two lines is what is left here.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.node_world import BINARY, CONFIG_DIR, CPU_STATE, KERNEL, Behaviour, NodeWorld
from tests.support.played_systemd import BY_HAND, KUBEADM, LIMITED, ON_FAILURE, UnitFile
from upgrader.core.node_protocol.orders import (
    KubeletSettings,
    KubeletTarget,
    NodeDriver,
    OrderResult,
    Reason,
    Reboot,
    UpgradeOrder,
)
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import NOT_UNLOADED, UpgradeRun

KILLABLE = tuple(
    f"/upgrader/{name}.py"
    for name in (
        "process/atomic_file",
        "node/upgrade/upgrade",
        "node/upgrade/upgrade_record",
        "node/upgrade/reboot",
        "node/upgrade/boot_comparison",
        "node/driver/driver_programs",
        "node/driver/driver_unload",
        "node/kubelet/kubelet_settings",
        "node/kubelet/kubelet_restart",
        "node/host/system_units",
    )
)
ORDER = UpgradeOrder(
    upgrade="v",
    unload=NodeDriver(vendor="sim", version="1.0.0"),
    kubelet=KubeletTarget(version="1.35.4", binary=BINARY),
)
STATIC = KubeletSettings(binary=BINARY, values={"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
NEXT = "6.1.0-50-amd64"
REBOOT = Reboot(kernel=NEXT, select=("/sbin/choose", "--default"), restart=("/sbin/reboot",))
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of upgrades sync a lot
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


def upgrade(world: NodeWorld, order: UpgradeOrder = ORDER) -> OrderResult:
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


def end(world: NodeWorld, result: OrderResult) -> tuple[object, ...]:
    """What must be the same at the end, however it was come to."""
    kept = world.host.state / "kubelet" / "previous" / "kubelet"
    return (
        result.reason,
        world.loaded(),
        world.installed(),
        world.runs(),
        world.kubelet.read_version(kept),
        sorted(path for path in world.files() if "upgrader-new" not in path and not path.startswith("proc/")),
    )


def lines_of(new: Behaviour) -> int:
    killer = Killer(None)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new)
        killer.run(lambda: upgrade(world))
    return killer.lines


def whole(new: Behaviour, unit: UnitFile | None = None) -> tuple[object, ...]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = supervised(NodeWorld(Path(folder), new=new), unit)
        return end(world, upgrade(world))


def supervised(world: NodeWorld, unit: UnitFile | None) -> NodeWorld:
    """The world with its kubelet as a unit of systemd, if there is one."""
    if unit is not None:
        world.run_kubelet_as_unit(unit)
    return world


@pytest.mark.parametrize("new", [WELL, DEAD], ids=["done", "restored"])
def test_killed_once_at_each_line(new):
    expected = whole(new)
    lines = lines_of(new)
    assert lines > 150  # it really goes through the code
    for at in [*range(1, 150), *range(150, lines + 1, 7)]:  # later ones are rounds of waiting
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            world = NodeWorld(Path(folder), new=new)
            with pytest.raises(Killed):
                Killer(at).run(lambda world=world: upgrade(world))
            assert end(world, upgrade(world)) == expected, f"killed at line event {at} of {lines}"


@examples(80)
@given(
    new=st.sampled_from([WELL, SICK, DEAD]),
    unit=st.sampled_from([None, KUBEADM, LIMITED, ON_FAILURE, BY_HAND]),
    kills=st.lists(st.integers(1, 400), max_size=6),
)
def test_killed_again_and_again(new, unit, kills):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = supervised(NodeWorld(Path(folder), new=new), unit)
        for at in kills:
            try:
                Killer(at).run(lambda: upgrade(world))
            except Killed:
                continue
        assert end(world, upgrade(world)) == whole(new, unit)


@examples(60)
@given(kills=st.lists(st.integers(1, 120), max_size=6), held=st.booleans())
def test_however_often_it_is_killed_it_reboots_once_and_last(kills, held):
    order = UpgradeOrder(upgrade="v", unload=ORDER.unload, reboot=REBOOT)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder))
        world.install_kernel(NEXT)
        world.programs.holders = ["pid 7 (trainer)"] if held else []
        for at in kills:
            try:
                Killer(at).run(lambda: upgrade(world, order))
            except Killed:
                assert world.machine.boots == 1 or world.machine.kernel == NEXT
        result = upgrade(world, order)
        assert (result.reason, result.facts["boot id before"]) == (Reason.DONE, "boot-1")
        assert (NOT_UNLOADED in result.facts) is held
        assert (world.machine.kernel, world.machine.boots, world.loaded()) == (NEXT, 2, False)


@examples(60)
@given(
    kills=st.lists(st.integers(1, 400), max_size=6),
    state=st.sampled_from([{}, {"code": 3}, {"holders": ["pid 7 (exporter)"]}]),
    swap=st.booleans(),
)
def test_however_often_it_is_killed_it_reboots_once_if_the_unload_fails_and_else_never(kills, state, swap):
    own = msgspec.structs.replace(REBOOT, kernel=KERNEL, only_after_failed_unload=True)
    changed = {"kubelet": ORDER.kubelet, "settings": STATIC} if swap else {}
    order = UpgradeOrder(upgrade="v", unload=ORDER.unload, reboot=own, **changed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder))
        world.install_kernel(NEXT)
        for name, value in state.items():
            setattr(world.programs, name, value)
        for at in kills:
            try:
                Killer(at).run(lambda: upgrade(world, order))
            except (Killed, OrderFailedError):
                assert world.machine.boots <= 1 + bool(state)
        if "holders" in state and world.machine.boots == 1:
            with contextlib.suppress(OrderFailedError):  # they are reported once
                upgrade(world, order)
        assert upgrade(world, order).reason is Reason.DONE
        assert (world.machine.kernel, world.machine.boots, world.loaded()) == (KERNEL, 1 + bool(state), False)
        assert world.installed() == ("1.35.4" if swap else "1.34.4")


@given(kills=st.lists(st.integers(1, 200), min_size=1, max_size=4), pause=st.floats(0.1, 90))
@examples(40)
def test_a_kubelet_that_becomes_sick_between_two_runs_is_put_back_or_lost_but_never_called_well(kills, pause):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder))
        for at in kills:
            try:
                Killer(at).run(lambda: upgrade(world))
            except Killed:
                world.clock.wait(pause)
        before = (world.host.state / "upgrades" / "v.json").exists()
        world.kubelet.api_away = True
        try:
            reason = upgrade(world).reason
        except OrderFailedError as error:
            reason = error.reason
        assert before or reason is Reason.KUBELET_RESTORED


def settings_end(world: NodeWorld, result: OrderResult) -> tuple[object, ...]:
    files = (CPU_STATE, f"{CONFIG_DIR}/90-gpu-upgrader.conf")
    there = [world.host.path(one) for one in files]
    return (*end(world, result), [one.read_bytes() if one.exists() else None for one in there])


def settings_whole(order: UpgradeOrder, new: Behaviour, old: Behaviour) -> tuple[object, ...]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new, old=old)
        world.write(KEPT, old)
        return settings_end(world, upgrade(world, order))


KEPT = "/var/lib/gpu-upgrader/kubelet/previous/kubelet"
OLD = Behaviour(version="1.34.4")
ONLY_NONE = Behaviour(version="1.34.4", policies=("none",))


@examples(60)
@given(
    swap=st.booleans(),
    new=st.sampled_from([WELL, SICK]),
    old=st.sampled_from([OLD, ONLY_NONE]),
    kills=st.lists(st.integers(1, 400), max_size=6),
)
def test_settings_of_the_kubelet_come_to_the_same_end_however_often_it_is_killed(swap, new, old, kills):
    order = UpgradeOrder(upgrade="v", kubelet=ORDER.kubelet if swap else None, settings=STATIC)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder), new=new, old=old)
        world.write(KEPT, old)
        for at in kills:
            try:
                Killer(at).run(lambda: upgrade(world, order))
            except Killed:
                continue
        assert settings_end(world, upgrade(world, order)) == settings_whole(order, new, old)


@examples(60)
@given(first=st.lists(st.integers(1, 300), max_size=3), kills=st.lists(st.integers(1, 300), max_size=4))
def test_however_far_a_change_of_settings_came_going_back_ends_with_those_of_before(first, kills):
    order = UpgradeOrder(upgrade="v", settings=STATIC)
    undo = UpgradeOrder(upgrade="v-revert", undoes="v", settings=msgspec.structs.replace(STATIC, values={}))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = NodeWorld(Path(folder))
        before = world.host.path(CPU_STATE).read_bytes()
        for which, at in [*((order, one) for one in first), *((undo, one) for one in kills)]:
            try:
                Killer(at).run(lambda which=which: upgrade(world, which))
            except Killed:
                continue
        assert upgrade(world, undo).reason is Reason.DONE
        assert world.host.path(CPU_STATE).read_bytes() == before
        assert not world.host.path(f"{CONFIG_DIR}/90-gpu-upgrader.conf").exists()
        assert world.runs() == ["1.34.4"]
