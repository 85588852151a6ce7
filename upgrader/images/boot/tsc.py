"""How fast this machine's time stamp counter (TSC) runs, which an emulated machine shows to its kernel as its own.

A kernel measures that at its start by the emulated PIT, for ten milliseconds. Where its processor is not run meanwhile
the result is too small, and its clock too fast: 51 MHz instead of 2,596 were seen, with a HPET beside it that said so
and was not believed. All that such a node waits for is over at once. A kernel that is told the rate measures nothing.
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


def argument() -> str:
    """What the kernel of an emulated machine is told, which refines it within one percent (`tsc_early_khz`).

    Empty on a machine that is no x86-64, or lets nobody run what he wrote into memory: then it measures by itself.
    """
    rate = khz()
    return f"tsc_early_khz={rate}" if rate else ""


@functools.cache
def khz() -> int:
    """Thousands of ticks in a second, measured once in a process; 0 where the counter cannot be read."""
    if platform.machine() != "x86_64":
        return 0
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except PermissionError:
        return 0
    code.write(_RDTSC)
    start = ctypes.c_char.from_buffer(code)  # keeps the page
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(start))
    first_ns, first = _both(read)
    time.sleep(MEASURED_SECONDS)
    last_ns, last = _both(read)
    return round((last - first) * 1_000_000 / (last_ns - first_ns))


def _both(read: Callable[[], int]) -> tuple[float, int]:
    """The monotonic clock in nanoseconds and the counter of one moment: the least interrupted of some readings."""
    readings = []
    for _ in range(_READINGS):
        before, ticks, after = time.monotonic_ns(), read(), time.monotonic_ns()
        readings.append((after - before, (before + after) / 2, ticks))
    _, moment, ticks = min(readings)
    return moment, ticks
