"""Boot checks: the kernel of a driver image is booted in QEMU and loads the modules."""

from upgrader.images.boot.check import (
    BOOT_SECONDS,
    ENFORCE_SIGNATURES,
    boot_modules,
    find_kernel,
)
from upgrader.images.boot.judging import is_undecided, judge_boot, parse_loads
from upgrader.images.boot.values import Boot, BootKernel, ModuleLoad

__all__ = [
    "BOOT_SECONDS",
    "ENFORCE_SIGNATURES",
    "Boot",
    "BootKernel",
    "ModuleLoad",
    "boot_modules",
    "find_kernel",
    "is_undecided",
    "judge_boot",
    "parse_loads",
]
