"""Power limits over an unload of the driver, with nvidia-smi played: kept, set again, and what cannot be set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.smi_reports import make_gpu, render_report
from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, UpgradeOrder
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.power_limits import (
    FILE,
    describe_limits,
    find_set_limits,
    keep_power_limits,
    parse_watts,
    restore_power_limits,
)

GPUS = ("GPU-a", "GPU-b", "GPU-c")
NVIDIA = NodeDriver(vendor="nvidia", version="1.0")


class Node:
    """The disk of a node, and nvidia-smi on its GPUs, as NVIDIA's does: what is not supported has exit code 0."""

    def __init__(self, folder):
        self.host = Host(root=folder)
        self.smi = self.host.state / "drivers/nvidia/current/nvidia-smi"
        self.smi.parent.mkdir(parents=True)
        self.smi.write_text("")
        self.limits = dict.fromkeys(GPUS, "700.00 W")
        self.supported, self.code = True, 0

    @property
    def file(self):
        return self.host.state / FILE

    def run(self, words, *, seconds, env=None):
        arguments = words[words.index(str(self.smi)) + 1 :]
        if self.code:
            return ProgramResult(code=self.code, output="GPU is lost")
        if "-pl" in arguments:
            _, uuid, _, watts = arguments
            if self.supported:
                self.limits[uuid] = f"{float(watts):.2f} W"
            return ProgramResult(code=0, output="All done." if self.supported else "not supported in current scope")
        gpus = [
            make_gpu(uuid, f"0000:{0x1B + number:02x}:00.0", power_limit=limit)
            for number, (uuid, limit) in enumerate(self.limits.items())
        ]
        return ProgramResult(code=0, output=render_report("1.0", gpus))

    def keep(self, upgrade="u1", undoes="", driver=NVIDIA):
        order = UpgradeOrder(upgrade=upgrade, undoes=undoes, unload=driver)
        return keep_power_limits(order, self.host, self)

    def reload(self):
        self.limits = dict.fromkeys(self.limits, "700.00 W")

    def restore(self):
        return restore_power_limits(self.host.state, self)

    def refused(self):
        with pytest.raises(OrderFailedError) as caught:
            self.restore()
        return caught.value.reason, str(caught.value)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_they_are_set_again_once(node):
    node.limits |= {"GPU-a": "500.00 W", "GPU-c": "450.50 W"}
    before = dict(node.limits)
    assert node.keep() == {"power limits": "kept: 1 x 450.5 W, 1 x 500 W"}
    node.reload()
    assert node.restore() == OrderResult(
        reason=Reason.DONE,
        message="power limits set again: 1 x 450.5 W, 1 x 500 W",
        facts={"power limits": "1 x 450.5 W, 1 x 500 W"},
    )
    assert (node.limits, node.file.exists()) == (before, False)
    assert node.restore() == OrderResult(reason=Reason.DONE, message="")


def test_default_limits_are_not_kept(node):
    assert node.keep() == {}
    assert not node.file.exists()


@pytest.mark.parametrize("driver", [None, NodeDriver(vendor="sim", version="1.0")])
def test_only_an_unload_of_nvidias_driver_keeps_them(node, driver):
    node.limits["GPU-a"] = "500.00 W"
    assert node.keep(driver=driver) == {}


def test_a_second_run_and_the_revert_of_an_upgrade_do_not_replace_them(node):
    node.limits["GPU-a"] = "500.00 W"
    node.keep()
    node.reload()
    node.limits["GPU-b"] = "600.00 W"  # on the new driver, which the revert unloads
    assert (node.keep(), node.keep("u1-revert", undoes="u1")) == ({}, {})
    node.reload()
    node.restore()
    assert node.limits == {"GPU-a": "500.00 W", "GPU-b": "700.00 W", "GPU-c": "700.00 W"}


def test_what_an_earlier_upgrade_could_not_set_stays_until_users_set_others(node):
    node.limits["GPU-a"] = "500.00 W"
    node.keep("u1")
    node.reload()
    assert node.keep("u2") == {}
    node.limits["GPU-b"] = "400.00 W"
    assert node.keep("u3") == {"power limits": "kept: 1 x 400 W"}
    node.reload()
    node.restore()
    assert node.limits == {"GPU-a": "700.00 W", "GPU-b": "400.00 W", "GPU-c": "700.00 W"}


def test_a_limit_that_is_not_set_although_nvidia_smi_ends_well_is_a_fault(node):
    node.limits["GPU-a"] = "500.00 W"
    node.keep()
    node.reload()
    node.supported = False
    reason, message = node.refused()
    assert reason is Reason.DEVICE_FAILED
    assert message == (
        "the power limits of GPUs are not set again: GPU-a: 700.00 W instead of 500 W (not supported in current "
        f"scope); to accept the present limits, delete {node.file} on the node"
    )
    node.supported = True
    assert node.restore().facts == {"power limits": "1 x 500 W"}


def test_a_gpu_that_is_missing_has_no_limit_to_set(node):
    node.limits |= {"GPU-a": "500.00 W", "GPU-b": "500.00 W"}
    node.keep()
    del node.limits["GPU-a"]
    node.reload()
    assert node.restore().facts == {"power limits": "1 x 500 W"}


def test_a_driver_that_does_not_answer_is_unloaded_without_them(node):
    node.code = 15
    assert node.keep() == {"power limits": "not kept: nvidia-smi ended with exit code 15: GPU is lost"}


def test_a_driver_without_nvidia_smi(node):
    node.limits["GPU-a"] = "500.00 W"
    node.keep()
    node.smi.unlink()
    assert node.keep("u2") == {}
    assert "has no nvidia-smi to set them with" in node.refused()[1]


@pytest.mark.parametrize("contents", ["", "{", "[]", '{"upgrade":"u","watts":{"GPU-a":"much"}}'])
def test_a_damaged_file_is_named(node, contents):
    node.file.write_text(contents)
    assert "they cannot be read" in node.refused()[1]
    assert node.keep()["power limits"].startswith("not kept: ")


@given(watts=st.integers(0, 99999), cents=st.integers(0, 99))
def test_what_nvidia_smi_prints_is_read(watts, cents):
    assert parse_watts(f"{watts}.{cents:02} W") == float(f"{watts}.{cents:02}")


@given(text=st.text(max_size=12).filter(lambda text: not text.endswith(" W")))
def test_any_other_text_is_no_limit(text):
    assert parse_watts(text) is None


@pytest.mark.parametrize("text", [" W", "-1 W", "1e9 W", "1.-2 W", "100000.00 W", "nan W", "²5 W", "500 W W"])
def test_no_number_is_no_limit(text):
    assert parse_watts(text) is None


def test_a_gpu_without_a_limit_or_without_a_default_has_none_to_keep():
    gpus = [make_gpu("GPU-a", power_limit=""), make_gpu("GPU-b", default_power_limit="")]
    assert (find_set_limits(gpus), describe_limits({})) == ({}, "none")
