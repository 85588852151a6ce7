"""The wanted cells (driver x kernel), from matrix.toml and the contents of the archives."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity

NEWEST = "newest"


class Distribution(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution by its code name, and the suites of its archive that are read."""

    os: str
    suites: tuple[str, ...]


class CellSelector(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells by selectors.

    Args:
        recipe: name of a folder in driver-images/.
        os: code name of a distribution.
        drivers: versions, with * and ? as in file names, or `newest`.
        kernels: releases, with * and ? as in file names.
        newest: only this many of those kernels, the newest; 0 for all.
        modules: of the recipe; the modules that they need are included. Empty for all.
    """

    recipe: str
    os: str
    drivers: tuple[str, ...]
    kernels: tuple[str, ...]
    newest: int = 0
    modules: tuple[str, ...] = ()


class Matrix(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """matrix.toml. `components` are those of every suite that is read."""

    components: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    cells: tuple[CellSelector, ...]

    def __post_init__(self) -> None:
        known = {distribution.os for distribution in self.distributions}
        for wanted in self.cells:
            if wanted.os not in known:
                raise ValueError(f"{wanted.recipe} is requested for {wanted.os}, which is not one of the distributions")

    @property
    def suites(self) -> tuple[str, ...]:
        """All suites that are read."""
        return tuple(dict.fromkeys(suite for distribution in self.distributions for suite in distribution.suites))


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
    """A wanted image. `modules` is empty for all modules of the recipe."""

    identity: Identity
    modules: tuple[str, ...] = ()


class UnmatchedSelector(Struct, frozen=True, kw_only=True):
    """A selector that selects nothing: a typing error, or a version that the archives no longer have."""

    wanted: CellSelector
    selector: str


def select_cells(
    matrix: Matrix, recipes: Mapping[str, RecipeFacts], kernels: Sequence[KernelFacts]
) -> tuple[tuple[Cell, ...], tuple[UnmatchedSelector, ...]]:
    """The cells that are wanted, each once, and the selectors that select nothing.

    `kernels` are sorted, oldest first. If two entries select the same cell, the first entry counts.

    Raises:
        ValueError: a recipe that does not exist.
    """
    by_identity: dict[Identity, Cell] = {}
    unmatched: list[UnmatchedSelector] = []
    for wanted in matrix.cells:
        if wanted.recipe not in recipes:
            raise ValueError(f"there is no recipe {wanted.recipe}; there are {', '.join(sorted(recipes))}")
        facts = recipes[wanted.recipe]
        offered = [kernel for kernel in kernels if kernel.os == wanted.os]
        releases, lost = _select_offered(wanted.kernels, [kernel.release for kernel in offered])
        versions, unknown = _select_offered(wanted.drivers, facts.drivers.get(wanted.os, ()))
        unmatched += [UnmatchedSelector(wanted=wanted, selector=selector) for selector in (*unknown, *lost)]
        chosen = [kernel for kernel in offered if kernel.release in releases][-wanted.newest :]
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
                by_identity.setdefault(identity, Cell(identity=identity, modules=wanted.modules))
    return tuple(by_identity[key] for key in sorted(by_identity)), tuple(unmatched)


def _select_offered(selectors: Sequence[str], offered: Sequence[str]) -> tuple[list[str], list[str]]:
    """The selected values, in the order of `offered`, and the selectors that select nothing."""
    chosen: set[str] = set()
    lost: list[str] = []
    for selector in selectors:
        hits = offered[-1:] if selector == NEWEST else [value for value in offered if fnmatchcase(value, selector)]
        chosen.update(hits)
        lost += [] if hits else [selector]
    return [value for value in offered if value in chosen], lost


def find_alternatives(red: Identity, green: Iterable[Identity]) -> tuple[str, ...]:
    """Recipes and drivers of the same vendor that have an image for the same kernel, as `nvidia 535.309.01`."""
    fitting = (identity for identity in green if _is_same_kernel(identity, red) and identity != red)
    return tuple(sorted({f"{identity.recipe} {identity.driver}" for identity in fitting}))


def _is_same_kernel(left: Identity, right: Identity) -> bool:
    return (left.vendor, left.kernel, left.os, left.arch) == (right.vendor, right.kernel, right.os, right.arch)
