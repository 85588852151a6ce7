"""The rate of the time stamp counter, measured on the machine that runs the test."""

import platform
import re
from pathlib import Path

import pytest

from upgrader.images.boot import tsc

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has the counter")


def test_two_measurements_agree_to_a_thousandth():
    first, second = tsc.measure_khz.__wrapped__(), tsc.measure_khz.__wrapped__()

    assert abs(first - second) <= first / 1000


def test_it_is_the_rate_of_a_processor_as_this_one():
    running_at = re.search(r"^cpu MHz\s*: ([\d.]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert running_at is not None

    # a processor runs slower and faster than its counter as it likes, and a counter that is read wrongly is far off
    assert 1 / 4 < tsc.measure_khz() / 1000 / float(running_at[1]) < 4


def test_a_kernel_is_told_thousands_of_ticks():
    assert tsc.kernel_argument() == f"tsc_early_khz={tsc.measure_khz()}"
