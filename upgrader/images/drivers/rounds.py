"""Many cells at once: each is defined, built where it is missing, and pushed. One that cannot be stops no other."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from upgrader.core.build_results import BuildResult, CellState
from upgrader.core.driver_builds import Failure, FailureClass
from upgrader.core.driver_matrix import Cell, alternatives
from upgrader.core.errors import UpgraderError
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.drivers.building import Workshop
from upgrader.images.drivers.definition import Definition
from upgrader.images.drivers.recipes import RecipeFolder
from upgrader.images.drivers.shelf import Shelf

Publish = Callable[[BuildResult], BuildResult]
"""Pushes the image of a cell that has one; a cell whose image cannot be pushed comes back red."""


class Definitions(Protocol):
    """What cells are made of."""

    recipes: Mapping[str, RecipeFolder]

    def definition(self, cell: Cell) -> Definition:
        """All inputs of a cell, pinned; ArchiveError where one is in no archive."""
        ...


class Round:
    """Goes over cells.

    Args:
        cells: what the cells are made of.
        workshop: builds them.
        shelf: where images are, also those of other rounds.
        publish: called for every cell with an image.
        parallel: how many cells at once; cores and memory are the workshop's budget.
    """

    def __init__(
        self, cells: Definitions, workshop: Workshop, shelf: Shelf, *, publish: Publish | None = None, parallel: int = 2
    ) -> None:
        self._cells = cells
        self._workshop = workshop
        self._shelf = shelf
        self._publish = publish
        self._parallel = parallel

    def run(self, wanted: Sequence[Cell]) -> tuple[BuildResult, ...]:
        """The results in the order of the cells.

        Raises:
            UpgraderError: something is wrong with this machine or its settings, and would be with every cell. The cells
                that were begun are given up; what they have finished stays.
        """
        results: dict[int, BuildResult] = {}
        pending: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[UpgraderError | Exception | None] = queue.SimpleQueue()
        for number in range(len(wanted)):
            pending.put(number)

        def work() -> None:
            try:
                while True:
                    number = pending.get_nowait()
                    results[number] = self.one(wanted[number])
            except queue.Empty:
                ended.put(None)
            except Exception as error:  # noqa: BLE001 - carried to the caller, who raises it
                ended.put(error)

        # As daemons they keep nobody from ending: what they have started dies with us, and nothing is half kept.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self._parallel, len(wanted)))]
        for thread in threads:
            thread.start()
        for _ in threads:
            if (error := ended.get()) is not None:
                raise error
        return self._with_alternatives([results[number] for number in range(len(wanted))])

    def one(self, cell: Cell) -> BuildResult:
        """One cell, from its inputs to where it is published."""
        try:
            definition = self._cells.definition(cell)
        except ArchiveError as error:
            return BuildResult(identity=cell.identity, state=CellState.RED, failure=error.failure())
        recipe = self._cells.recipes[cell.identity.recipe]
        result = self._workshop.known(definition) or self._workshop.build(definition, recipe)
        if self._publish is None or not result.digest:
            return result
        return self._publish(result)

    def _with_alternatives(self, results: Sequence[BuildResult]) -> tuple[BuildResult, ...]:
        green = [one.identity for one in results if one.digest] + [one.identity for one in self._shelf.records()]
        return tuple(
            msgspec.structs.replace(one, alternatives=alternatives(one.identity, green))
            if one.state is CellState.RED
            else one
            for one in results
        )


def unpublished(result: BuildResult, why: str, kind: FailureClass) -> BuildResult:
    """A cell whose image is built and could not be published."""
    failure = Failure(kind=kind, first_error=why.partition("\n")[0])
    return msgspec.structs.replace(result, state=CellState.RED, failure=failure)
