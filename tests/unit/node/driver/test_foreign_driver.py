"""A driver that another program has loaded, on a played /sys/module and /proc."""

from pathlib import Path

import pytest

from tests.support.node_world import VirtualClock
from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import NodeDriver, Reason
from upgrader.node.driver.device_holders import DeviceHolder, find_device_holders
from upgrader.node.driver.driver_unload import unload_driver
from upgrader.node.driver.foreign_driver import removal_order
from upgrader.node.driver.unload_patience import UnloadPatience
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.task_result import OrderFailedError

NVIDIA = NodeDriver(vendor="nvidia", version="")
POD = "0a8f4a5e-32c3-4d5b-8f0a-8f6f0f6a9c11"
HOLDERS = {
    "drm": ("nvidia", "nvidia_drm", "ast"),
    "nvidia": ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "gdrdrv"),
    "nvidia_modeset": ("nvidia_drm",),
    "nvidia_drm": (),
    "nvidia_uvm": (),
    "gdrdrv": (),
}
"""/sys/module/NAME/holders of a node with all modules of the driver and gdrcopy's."""


class Kernel:
    """rmmod and /sys/module; `stuck` are modules whose removal fails, with the message."""

    def __init__(self, folder: Path) -> None:
        self.system = folder
        self.stuck: dict[str, str] = {}
        self.removed: list[str] = []
        self.endless = False
        for name, holders in HOLDERS.items():
            for holder in holders:
                (folder / "module" / name / "holders" / holder).mkdir(parents=True)
            (folder / "module" / name).mkdir(parents=True, exist_ok=True)
            (folder / "module" / name / "refcnt").write_text(f"{len(holders)}\n")
        (folder / "module/nvidia/version").write_text("535.183.01\n")

    def run(self, words, *, seconds, env=None):
        program, module = words
        assert program == "rmmod"
        if self.endless:
            raise ProcessError(f"rmmod did not end within {seconds:.0f} s")
        if module in self.stuck:
            return ProgramResult(code=1, output=self.stuck[module])
        self.removed.append(module)
        return ProgramResult(code=0, output="")


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path / "sys")


@pytest.fixture
def host(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "root").mkdir()
    return Host(tmp_path / "root", tmp_path / "proc")


def add_process(host, pid, *, name="python3", opened="", mapped="", group="0::/"):
    folder = host.proc / str(pid)
    for part, target in (("fd/3", opened), ("map_files/7f00-7f01", mapped)):
        if target:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).symlink_to(target)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(f"{group}\n")


def unload(host, kernel, *, adopted=True, patience=4):
    limits = UnloadPatience(users=patience, removal=600)
    return unload_driver(host, NVIDIA, kernel, VirtualClock(), patience=limits, adopted=adopted, system=kernel.system)


def test_modules_are_removed_users_first_as_the_kernel_shows_them(host, kernel):
    assert removal_order(kernel.system, "nvidia") == ("gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
    assert unload(host, kernel) == (
        "nvidia 535.183.01, which another program loaded, unloaded: "
        "gdrdrv, nvidia_drm, nvidia_modeset, nvidia_uvm, nvidia"
    )
    assert kernel.removed == ["gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"]


def test_a_module_that_is_not_loaded_or_built_into_the_kernel_is_not_removed(kernel):
    assert removal_order(kernel.system, "nouveau") == ()
    (kernel.system / "module/nvidia/refcnt").unlink()
    assert removal_order(kernel.system, "nvidia") == ()


def test_a_driver_of_another_program_stays_on_a_node_that_was_not_handed_over(host, kernel):
    assert unload(host, kernel, adopted=False) == "nvidia driver was not loaded"
    assert kernel.removed == []


def test_processes_are_named_with_their_pod_or_unit_and_nothing_is_removed(host, kernel):
    pod_group = f"0::/kubelet.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-1.scope"
    add_process(host, 4711, opened="/dev/nvidia0", group=pod_group)
    add_process(host, 812, name="nv-hostengine", mapped="/dev/nvidiactl", group="0::/system.slice/nvidia-dcgm.service")
    add_process(host, 9, name="bash", opened="/home/nvidia0")
    with pytest.raises(OrderFailedError) as caught:
        unload(host, kernel)
    assert (caught.value.reason, kernel.removed) == (Reason.BUSY, [])
    assert str(caught.value) == (
        "nvidia 535.183.01, which another program loaded, is in use: "
        f"pid 812 (nv-hostengine, nvidia-dcgm.service), pid 4711 (python3, pod {POD})"
    )


def test_a_process_that_ends_while_it_is_waited_for_is_no_failure(host, kernel):
    add_process(host, 4711, opened="/dev/nvidia0")

    class Ending(VirtualClock):
        def wait(self, seconds):
            (host.proc / "4711/fd/3").unlink(missing_ok=True)
            super().wait(seconds)

    patience = UnloadPatience(users=4, removal=60)
    unload_driver(host, NVIDIA, kernel, Ending(), patience=patience, adopted=True, system=kernel.system)
    assert kernel.removed[-1] == "nvidia"


def test_a_module_that_the_kernel_does_not_let_go_is_reported_as_busy(host, kernel):
    kernel.stuck["nvidia_uvm"] = "rmmod: ERROR: Module nvidia_uvm is in use"
    with pytest.raises(OrderFailedError) as caught:
        unload(host, kernel)
    assert caught.value.reason is Reason.BUSY
    assert "module nvidia_uvm of nvidia 535.183.01" in str(caught.value)
    assert kernel.removed == ["gdrdrv", "nvidia_drm", "nvidia_modeset"]


def test_a_removal_that_does_not_end_is_a_failure_of_the_device(host, kernel):
    kernel.endless = True
    with pytest.raises(OrderFailedError) as caught:
        unload(host, kernel)
    assert caught.value.reason is Reason.DEVICE_FAILED


def test_all_removals_together_have_the_time_of_the_order(host, kernel):
    clock, limits = VirtualClock(), []

    class Slow(type(kernel)):
        def run(self, words, *, seconds, env=None):
            limits.append(seconds)
            clock.wait(100)
            return super().run(words, seconds=seconds, env=env)

    kernel.__class__ = Slow
    patience = UnloadPatience(users=4, removal=450)
    unload_driver(host, NVIDIA, kernel, clock, patience=patience, adopted=True, system=kernel.system)
    assert limits == [450, 350, 250, 150, 50]


def test_a_process_that_ended_during_the_search_holds_nothing(host):
    (host.proc / "77").mkdir()
    (host.proc / "self").symlink_to("77")
    add_process(host, 78, opened="/dev/nvidia-uvm", group="")
    (host.proc / "78/comm").unlink()
    assert find_device_holders(host.proc, "/dev/nvidia") == (DeviceHolder(pid=78, name="ended"),)
