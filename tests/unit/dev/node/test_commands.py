"""`python -m upgrader_dev.node` as a program: the options that a stack starts its commands with."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.task_result import EXIT_CODES
from upgrader.process import run
from upgrader.stack.vendors import find_vendor
from upgrader_dev.vendor.sim import PROGRAM


def command(*words):
    return run([sys.executable, "-m", "upgrader_dev.node", *words], timeout=30, check=False)


@given(
    operand=st.sampled_from([Operand.DEVICE_PLUGIN, Operand.RUNTIME]),
    driver=st.sampled_from(["sim", "nvidia"]),
    slices=st.sampled_from([0, 4]),
    cdi=st.booleans(),
)
@examples(6)
def test_its_operands_take_the_options_that_a_stack_starts_them_with(operand, driver, slices, cdi):
    settings = PluginSettings(
        vendor="sim", driver_vendor=driver, resource_name="nvidia.com/gpu", time_slices=slices, cdi=cdi
    )
    for proven in (settings, None):
        words = find_vendor("sim").image_checks[operand](proven).command
        assert words[:3] == PROGRAM
        assert command(*words[3:]).code == 0


def test_a_plugin_that_does_not_know_an_option_says_so_while_it_is_only_checked():
    finished = command("device-plugin", "--from-a-later-release", "--check")
    assert finished.code == 2
    assert b"--from-a-later-release" in finished.stderr


@pytest.mark.parametrize("words", [[], ["validate"]])
def test_what_is_no_command_says_which_there_are(words):
    finished = command(*words)
    assert finished.code == EXIT_CODES[Reason.BAD_ORDER]
    assert b"python -m upgrader_dev.node device-plugin|exporter|gpu-features|runtime" in finished.stderr


@pytest.mark.parametrize("name", ["device-plugin", "runtime"])
def test_a_check_of_the_options_does_not_load_what_decodes_orders(name):
    words = [name, "--check"]
    program = "from upgrader_dev.node.__main__ import run_operand"
    tried = f"import sys; {program}; print(run_operand({words!r}), 'msgspec' in sys.modules)"
    assert run([sys.executable, "-c", tried], timeout=30).stdout == b"0 False\n"
