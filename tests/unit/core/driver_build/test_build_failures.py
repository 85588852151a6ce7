"""Real logs (build_logs/README.md) and what they are filed under; and whatever a log says, something is made of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_build.build_failures import (
    LINES_KEPT,
    classify_log,
    exit_failure,
    last_lines,
    timeout_failure,
)
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass

LOGS = Path(__file__).parent / "build_logs"
REAL = {
    "too-few-arguments": BuildFailure(
        kind=FailureClass.COMPILE,
        first_error="/build/nvidia/nv-pci.c:223:9: error: too few arguments to function 'pci_resize_resource'",
        symbol="pci_resize_resource",
    ),
    "undefined": BuildFailure(
        kind=FailureClass.COMPILE,
        first_error='ERROR: modpost: "no_such_symbol" [/build/fakebridge.ko] undefined!',
        symbol="no_such_symbol",
    ),
    "conftest": BuildFailure(
        kind=FailureClass.CONFTEST,
        first_error="/tmp/23233/build/nvidia/NVIDIA-Linux-x86_64-530.30.02-no-compat32/kernel/conftest/functions.h"
        ":83:2: error: #error wait_on_bit_lock() conftest failed!",
        symbol="wait_on_bit_lock",
    ),
    "rt": BuildFailure(
        kind=FailureClass.UNSUPPORTED, first_error="The kernel you are installing for is a PREEMPT_RT kernel!"
    ),
    "no-headers-nvidia": BuildFailure(
        kind=FailureClass.HEADERS_MISSING,
        first_error="make[1]: *** /lib/modules/6.1.0-50-amd64/build: No such file or directory.  Stop.",
    ),
    "no-common-nvidia": BuildFailure(
        kind=FailureClass.HEADERS_MISSING,
        first_error="Makefile:1: /usr/src/linux-headers-6.1.0-50-common/Makefile: No such file or directory",
    ),
    "no-gcc-fakebridge": BuildFailure(kind=FailureClass.TOOLCHAIN_MISSING, first_error="/bin/sh: 1: gcc-12: not found"),
    "little-memory": BuildFailure(
        kind=FailureClass.TRANSIENT, first_error="virtual memory exhausted: Cannot allocate memory"
    ),
    "killed": BuildFailure(
        kind=FailureClass.TRANSIENT, first_error="gcc-12: fatal error: Killed signal terminated program cc1"
    ),
    "disk-full": BuildFailure(
        kind=FailureClass.TRANSIENT,
        first_error="/tmp/cc0p69Qz.s: Fatal error: can't write 3887 bytes to section .debug_str of "
        "/build/fakebridge.o: 'No space left on device'",
    ),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_a_real_log_is_filed_by_its_cause(name):
    assert classify_log((LOGS / name).read_text()) == REAL[name]


def test_every_kept_log_is_tested():
    assert {path.name for path in LOGS.iterdir()} == {*REAL, "README.md"}


def test_only_what_has_nothing_to_do_with_the_inputs_is_tried_again():
    again = {name for name, failure in REAL.items() if not failure.final}
    assert again == {"little-memory", "killed", "disk-full"}
    assert not timeout_failure(1800.0).final


def test_a_line_of_the_source_is_no_cause():
    log = (LOGS / "too-few-arguments").read_text()
    shown = '  224 |     printk("out of memory: No space left on device");\n'
    assert classify_log(shown + log) == classify_log(log)


@pytest.mark.parametrize("words", ["out of memory", "Input/output error", "No space left on device", "Killed"])
@pytest.mark.parametrize("sort", ["warning", "note", "error"])
def test_what_the_compiler_says_of_the_source_is_no_trouble_of_the_machine(words, sort):
    log = (LOGS / "too-few-arguments").read_text()
    said = f"/build/nvidia/nv.c:12:3: {sort}: '{words}' [-Wformat]\nWARNING: modpost: x: {words}\n"
    found = classify_log(said + log) if sort != "error" else classify_log(log + said)
    assert found == REAL["too-few-arguments"]


def test_a_full_disk_explains_the_errors_that_follow_from_it():
    both = (LOGS / "too-few-arguments").read_text() + (LOGS / "disk-full").read_text()
    assert classify_log(both).kind is FailureClass.TRANSIENT


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ("", "it printed no output"),
        ("gcc: hmm\nmake: *** [Makefile:1: x] Error 2\nmake: Leaving", "make: *** [Makefile:1: x] Error 2"),
        ("first\nlast\n\n", "last"),
    ],
)
def test_an_unknown_failure_is_told_by_its_last_complaint(log, complaint):
    assert classify_log(log) == BuildFailure(kind=FailureClass.COMPILE, first_error=complaint)


@given(st.text())
def test_whatever_it_says_the_error_is_one_line_of_it(log):
    failure = classify_log(log)
    assert len(failure.first_error.splitlines()) == 1
    assert failure.first_error in log or failure.first_error == "it printed no output"


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=2 * LINES_KEPT))
def test_the_end_of_a_log_is_kept(lines):
    kept = last_lines("\n".join(lines)).splitlines()
    assert kept == lines[-LINES_KEPT:]


def test_a_build_that_was_killed_says_nothing_about_the_driver():
    log = "x.c:1:2: error: too few arguments to function 'f'\nmake: *** [Makefile:1: x.o] Error 1"
    assert exit_failure(log, 2) == classify_log(log)
    killed = BuildFailure(kind=FailureClass.TRANSIENT, first_error="it was terminated by signal 9")
    assert exit_failure("  LD [M]  /build/nvidia.ko", 137) == killed
