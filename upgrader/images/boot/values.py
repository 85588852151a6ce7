"""A boot check as values: what is started, and what was seen."""

from pathlib import Path

from msgspec import Struct


class BootKernel(Struct, frozen=True, kw_only=True):
    """A kernel that can be booted: its image, and the folder of its own modules (lib/modules/RELEASE)."""

    release: str
    image: Path
    modules: Path


class Load(Struct, frozen=True, kw_only=True):
    """One module that the kernel was given: its answer, and what it printed meanwhile.

    `errno` is 0 where it was taken, and None where the kernel did not answer: it hung, panicked, or the time was over.
    """

    file: str
    errno: int | None
    said: tuple[str, ...] = ()


class Boot(Struct, frozen=True, kw_only=True):
    """A machine that was started and has ended. `console` is all that it printed on its serial port.

    `finished`: it got through its list. `overdue`: it was ended from outside after `seconds`. `undecided`: it failed
    and yet says nothing against the modules (see `judging.undecided`): overdue, or ended early without a panic.
    """

    release: str
    accelerator: str
    loads: tuple[Load, ...]
    finished: bool
    overdue: bool
    console: str
    seconds: float
    undecided: bool = False
