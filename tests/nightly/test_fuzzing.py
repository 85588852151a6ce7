"""Readers of what others write, on inputs that a fuzzer makes; `make fuzz` runs the same by hand.

Where there is no atheris (it comes built for x86-64) these tests are skipped; tests/unit/fuzz has the known inputs.
"""

import pytest

from tests.fuzz.names import NAMES
from tests.fuzz.run import fuzz

pytest.importorskip("atheris")

RUNS = 20_000
SECONDS = 900


def test_a_planted_fault_is_found_and_can_be_seen_again(tmp_path):
    broken = fuzz("planted", runs=1000, seconds=SECONDS, build=tmp_path)
    assert broken is not None
    assert broken.file is not None
    assert broken.file.read_bytes() == b"boom"
    assert f"python -m tests.fuzz.run planted {broken.file}" in str(broken)


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_raises_what_is_documented_and_nothing_else(name):
    broken = fuzz(name, runs=RUNS, seconds=SECONDS)
    assert broken is None, broken
