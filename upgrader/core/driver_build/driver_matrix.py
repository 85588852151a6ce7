"""Which cells (driver x kernel) are wanted, from matrix.toml and what the archives have."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity

NEWEST = "newest"


class Distribution(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution by its code name, and the suites of its archive that are looked at."""

    os: str
    suites: tuple[str, ...]


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells by selectors.

    Args:
        recipe: name of a folder in driver-images/.
        os: code name of a distribution.
        drivers: versions, with * and ? as in file names, or `newest`.
        kernels: releases, with * and ? as in file names.
        newest: only so many of those kernels, the newest; 0 for all.
        modules: of the recipe; those that they need are taken with them. Empty for all.
    """

    recipe: str
    os: str
    drivers: tuple[str, ...]
    kernels: tuple[str, ...]
    newest: int = 0
    modules: tuple[str, ...] = ()


class Matrix(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """matrix.toml. `components` are those of every suite that is looked at."""

    components: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    cells: tuple[Wanted, ...]

    def __post_init__(self) -> None:
        known = {one.os for one in self.distributions}
        for wanted in self.cells:
            if wanted.os not in known:
                raise ValueError(f"{wanted.recipe} is wanted for {wanted.os}, which is none of the distributions")

    @property
    def suites(self) -> tuple[str, ...]:
        """All suites that are looked at."""
        return tuple(dict.fromkeys(suite for one in self.distributions for suite in one.suites))


class KernelFacts(Struct, frozen=True, kw_only=True):
    """A kernel that the archives have."""

    release: str
    os: str
    arch: str


class RecipeFacts(Struct, frozen=True, kw_only=True):
    """A recipe, and the versions of its driver that each distribution has, oldest first."""

    vendor: str
    flavour: str
    drivers: Mapping[str, Sequence[str]]


class Cell(Struct, frozen=True, kw_only=True, order=True):
    """One image that is wanted. `modules` is empty for all of the recipe's."""

    identity: Identity
    modules: tuple[str, ...] = ()


class Unmatched(Struct, frozen=True, kw_only=True):
    """A selector that selects nothing: a typing error, or something that the archives no longer have."""

    wanted: Wanted
    selector: str


def cells(
    matrix: Matrix, recipes: Mapping[str, RecipeFacts], kernels: Sequence[KernelFacts]
) -> tuple[tuple[Cell, ...], tuple[Unmatched, ...]]:
    """The cells that are wanted, each once, and the selectors that select nothing.

    `kernels` are sorted, oldest first. Where two entries want the same cell, the one that stands first counts.

    Raises:
        ValueError: a recipe that is not there.
    """
    found: dict[Identity, Cell] = {}
    unmatched: list[Unmatched] = []
    for wanted in matrix.cells:
        if wanted.recipe not in recipes:
            raise ValueError(f"there is no recipe {wanted.recipe}; there are {', '.join(sorted(recipes))}")
        facts = recipes[wanted.recipe]
        offered = [one for one in kernels if one.os == wanted.os]
        releases, lost = _selected(wanted.kernels, [one.release for one in offered])
        versions, unknown = _selected(wanted.drivers, facts.drivers.get(wanted.os, ()))
        unmatched += [Unmatched(wanted=wanted, selector=one) for one in (*unknown, *lost)]
        chosen = [one for one in offered if one.release in releases][-wanted.newest :]
        for driver in versions:
            for kernel in chosen:
                identity = Identity(
                    vendor=facts.vendor,
                    recipe=wanted.recipe,
                    driver=driver,
                    flavour=facts.flavour,
                    kernel=kernel.release,
                    os=kernel.os,
                    arch=kernel.arch,
                )
                found.setdefault(identity, Cell(identity=identity, modules=wanted.modules))
    return tuple(found[key] for key in sorted(found)), tuple(unmatched)


def _selected(selectors: Sequence[str], offered: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the selectors select, in the order of `offered`, and the selectors that select nothing."""
    chosen: set[str] = set()
    lost: list[str] = []
    for selector in selectors:
        hits = offered[-1:] if selector == NEWEST else [one for one in offered if fnmatchcase(one, selector)]
        chosen.update(hits)
        lost += [] if hits else [selector]
    return [one for one in offered if one in chosen], lost


def alternatives(red: Identity, green: Iterable[Identity]) -> tuple[str, ...]:
    """Recipes and drivers of the same vendor that have an image for the same kernel, as `nvidia 535.309.01`."""
    fitting = (one for one in green if _same_place(one, red) and one != red)
    return tuple(sorted({f"{one.recipe} {one.driver}" for one in fitting}))


def _same_place(one: Identity, other: Identity) -> bool:
    return (one.vendor, one.kernel, one.os, one.arch) == (other.vendor, other.kernel, other.os, other.arch)
