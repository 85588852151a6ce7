"""Measures the rate of this machine's time stamp counter (TSC), which an emulated machine uses as its own.

A kernel measures the rate at its start by the emulated PIT, for ten milliseconds. If its processor is not scheduled in
that time, the result is too small and its clock too fast: 51 MHz instead of 2,596 were observed, and the kernel ignored
the HPET that contradicted it. All timers of such a node expire immediately. A kernel with a given rate does not
measure.
"""

import ctypes
import functools
import mmap
import platform
import time
from collections.abc import Callable

MEASURED_SECONDS = 0.05
_READINGS = 20
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret


def kernel_argument() -> str:
    """The kernel argument with the rate for an emulated machine (`tsc_early_khz`), which refines it within one percent.

    Empty if the machine is not x86-64 or forbids execution of written memory. The kernel then measures the rate itself.
    """
    rate = measure_khz()
    return f"tsc_early_khz={rate}" if rate else ""


@functools.cache
def measure_khz() -> int:
    """Frequency of the TSC (time stamp counter) in kHz, measured once per process; 0 if it cannot be read."""
    if platform.machine() != "x86_64":
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except PermissionError:
        return 0
    code.write(_RDTSC)
    start = ctypes.c_char.from_buffer(code)  # keeps the page mapped
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(start))
    first_ns, first = _read_both(read)
    time.sleep(MEASURED_SECONDS)
    last_ns, last = _read_both(read)
    return round((last - first) * 1_000_000 / (last_ns - first_ns))


def _read_both(read: Callable[[], int]) -> tuple[float, int]:
    """The monotonic clock in nanoseconds and the counter at the same time: of several readings the fastest."""
    readings = []
    for _ in range(_READINGS):
        before, ticks, after = time.monotonic_ns(), read(), time.monotonic_ns()
        readings.append((after - before, (before + after) / 2, ticks))
    _, moment, ticks = min(readings)
    return moment, ticks
