"""Modules proven on the kernel that they are for: booted in QEMU, loaded, judged by the kernel's answers."""

from upgrader.images.boot.check import (
    BOOT_SECONDS,
    ENFORCE_SIGNATURES,
    boot_modules,
    find_kernel,
)
from upgrader.images.boot.judging import judge, loads_on, undecided
from upgrader.images.boot.values import Boot, BootKernel, Load

__all__ = [
    "BOOT_SECONDS",
    "ENFORCE_SIGNATURES",
    "Boot",
    "BootKernel",
    "Load",
    "boot_modules",
    "find_kernel",
    "judge",
    "loads_on",
    "undecided",
]
