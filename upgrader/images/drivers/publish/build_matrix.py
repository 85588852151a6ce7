"""Many cells at once: each is defined, built where it is missing, and pushed. One that cannot be stops no other."""

import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import Failure, FailureClass
from upgrader.core.driver_build.driver_matrix import Cell, alternatives
from upgrader.core.errors import UpgraderError
from upgrader.images.drivers.builder.image_store import Record, Shelf
from upgrader.images.drivers.publish.failures import of_cell
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.process.places import Progress


class Definitions(Protocol):
    """What cells are made of."""

    recipes: Mapping[str, RecipeFolder]

    def definition(self, cell: Cell) -> Definition:
        """All inputs of a cell, pinned; ArchiveError where one is in no archive."""
        ...


class Publishing(Protocol):
    """The registry that images go to."""

    def find(self, definition: Definition) -> BuildResult | None:
        """The image of this very definition in the registry; None where it is not there; red where nobody says."""
        ...

    def publish(self, result: BuildResult) -> BuildResult:
        """Push the image of a cell that has one; a cell whose image cannot be pushed comes back red."""
        ...


class Building(Protocol):
    """Where cells are built."""

    def known(self, definition: Definition) -> BuildResult | None:
        """What became of this very definition before; None where it is to be built."""
        ...

    def build(self, definition: Definition, recipe: RecipeFolder) -> BuildResult:
        """The image of a definition, or why there is none."""
        ...


class Round:
    """Goes over cells.

    Args:
        cells: what the cells are made of.
        workshop: builds them.
        shelf: where images are, also those of other rounds.
        publisher: asked before a cell is built, and given every cell with an image.
        progress: told what is wrong with a cell, whole.
        parallel: how many cells at once; cores and memory are the workshop's budget.
    """

    def __init__(
        self,
        cells: Definitions,
        workshop: Building,
        shelf: Shelf,
        *,
        progress: Progress,
        publisher: Publishing | None = None,
        parallel: int = 2,
    ) -> None:
        self._cells = cells
        self._workshop = workshop
        self._shelf = shelf
        self._publisher = publisher
        self._progress = progress
        self._parallel = parallel

    def run(self, wanted: Sequence[Cell]) -> tuple[BuildResult, ...]:
        """The results in the order of the cells.

        Raises:
            ConfigurationError: the shelf cannot be read, and no cell could be kept. Later errors are of one cell each.
        """
        self._shelf.records()
        results: dict[int, BuildResult] = {}
        pending: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
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
                ended.put(error)  # and a fault of ours: what a cell may bring, `one` has made a red cell of

        # As daemons they keep nobody from ending: what they have started dies with us, and nothing is half kept.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self._parallel, len(wanted)))]
        for thread in threads:
            thread.start()
        for _ in threads:
            if (error := ended.get()) is not None:
                raise error
        return with_alternatives([results[number] for number in range(len(wanted))], self._shelf.records())

    def one(self, cell: Cell) -> BuildResult:
        """One cell, from its inputs to where it is published; whatever is wrong with it is its own."""
        try:
            return self._one(cell)
        except (UpgraderError, OSError) as error:
            return red(cell, error, self._progress)

    def _one(self, cell: Cell) -> BuildResult:
        definition = self._cells.definition(cell)
        known = self._workshop.known(definition)
        if known is None and (found := self._found(definition)) is not None:
            return found
        result = known or self._workshop.build(definition, self._cells.recipes[cell.identity.recipe])
        if self._publisher is None or not result.digest:
            return result
        try:
            return self._publisher.publish(result)
        except (UpgraderError, OSError) as error:
            return unpublished(result, str(error), FailureClass.PUSH)

    def _found(self, definition: Definition) -> BuildResult | None:
        """What another builder has published; where the registry does not say, nothing is built on a guess."""
        if self._publisher is None:
            return None
        try:
            return self._publisher.find(definition)
        except (UpgraderError, OSError) as error:
            asked = BuildResult(identity=definition.identity, state=CellState.RED, build_key=definition.key)
            return unpublished(asked, str(error), FailureClass.PUSH)


def red(cell: Cell, error: UpgraderError | OSError, progress: Progress) -> BuildResult:
    """A cell that ended with an error, which is told whole."""
    failure = of_cell(error)
    progress(f"{cell.identity}: {failure.kind}: {error}")
    return BuildResult(identity=cell.identity, state=CellState.RED, failure=failure)


def with_alternatives(results: Iterable[BuildResult], kept: Iterable[Record]) -> tuple[BuildResult, ...]:
    """The results, those of red cells with what is known to build for their kernels: other cells, and kept images."""
    found = tuple(results)
    green = [one.identity for one in found if one.digest] + [one.identity for one in kept]
    return tuple(
        msgspec.structs.replace(one, alternatives=alternatives(one.identity, green))
        if one.state is CellState.RED
        else one
        for one in found
    )


def unpublished(result: BuildResult, why: str, kind: FailureClass) -> BuildResult:
    """A cell whose image is built and could not be published."""
    failure = Failure(kind=kind, first_error=why.partition("\n")[0])
    return msgspec.structs.replace(result, state=CellState.RED, failure=failure)
