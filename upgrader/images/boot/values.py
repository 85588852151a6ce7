"""A boot check as values: the kernel and the results."""

from pathlib import Path

from msgspec import Struct


class BootKernel(Struct, frozen=True, kw_only=True):
    """A kernel to boot: its image, and the folder of its own modules (lib/modules/RELEASE)."""

    release: str
    image: Path
    modules: Path


class ModuleLoad(Struct, frozen=True, kw_only=True):
    """One module that the kernel loaded: its result, and the lines that were printed meanwhile.

    `errno` is 0 if the module was accepted, and None if there was no result: a hang, a panic, or the time-out.
    """

    file: str
    errno: int | None
    printed: tuple[str, ...] = ()


class Boot(Struct, frozen=True, kw_only=True):
    """A virtual machine that has ended. `console` is all output on its serial port.

    `finished`: it processed its whole list. `overdue`: it was stopped after `seconds`. `undecided`: it failed without a
    result about the modules (see `judging.is_undecided`).
    """

    release: str
    accelerator: str
    loads: tuple[ModuleLoad, ...]
    finished: bool
    overdue: bool
    console: str
    seconds: float
    undecided: bool = False
