"""Builds many cells in parallel: each is defined, built if it is missing, and pushed. A failed cell does not stop
others.
"""

import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.driver_build.driver_matrix import Cell, find_alternatives
from upgrader.core.errors import UpgraderError
from upgrader.images.drivers.builder.image_store import ImageRecord, Shelf
from upgrader.images.drivers.publish.failures import cell_failure
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.process.places import Progress


class Definitions(Protocol):
    """Provides the definitions of cells."""

    recipes: Mapping[str, RecipeFolder]

    def define_cell(self, cell: Cell) -> BuildDefinition:
        """All inputs of a cell, pinned; ArchiveError if no archive has one of them."""
        ...


class Publishing(Protocol):
    """Publishes images in a registry."""

    def find_published(self, definition: BuildDefinition) -> BuildResult | None:
        """The image of this definition in the registry; None if it does not exist; red if there is no answer."""
        ...

    def publish(self, result: BuildResult) -> BuildResult:
        """Push the image of a cell. If that fails, the returned cell is red."""
        ...


class Building(Protocol):
    """Builds cells."""

    def find_result(self, definition: BuildDefinition) -> BuildResult | None:
        """The stored result of this definition; None if it has to be built."""
        ...

    def build(self, definition: BuildDefinition, recipe: RecipeFolder) -> BuildResult:
        """The image of a definition, or the reason for a failure."""
        ...


class Round:
    """Builds cells.

    Args:
        cells: provides the definitions.
        workshop: builds the cells.
        shelf: the stored images, including those of earlier runs.
        publisher: searched for an image before a build, and receives every cell with an image.
        progress: receives the whole error of a cell.
        parallel: the number of cells that are built at the same time; the workshop's budget limits cores and memory.
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
            ConfigurationError: the shelf cannot be read, so no cell could be stored. Other errors fail a single cell.
        """
        self._shelf.list_records()
        results: dict[int, BuildResult] = {}
        pending: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        for number in range(len(wanted)):
            pending.put(number)

        def work() -> None:
            try:
                while True:
                    number = pending.get_nowait()
                    results[number] = self.build_cell(wanted[number])
            except queue.Empty:
                ended.put(None)
            except Exception as error:  # noqa: BLE001 - carried to the caller, who raises it
                ended.put(error)  # a defect of this program: `build_cell` turns errors of a cell into a red cell

        # Daemon threads do not delay the exit. Their programs end with this process, and no image is stored partly.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self._parallel, len(wanted)))]
        for thread in threads:
            thread.start()
        for _ in threads:
            if (error := ended.get()) is not None:
                raise error
        return with_alternatives([results[number] for number in range(len(wanted))], self._shelf.list_records())

    def build_cell(self, cell: Cell) -> BuildResult:
        """Process one cell, from its inputs to its publication. An error makes the cell red."""
        try:
            return self._find_or_build(cell)
        except (UpgraderError, OSError) as error:
            return red_result(cell, error, self._progress)

    def _find_or_build(self, cell: Cell) -> BuildResult:
        definition = self._cells.define_cell(cell)
        known = self._workshop.find_result(definition)
        if known is None and (published := self._find_published(definition)) is not None:
            return published
        result = known or self._workshop.build(definition, self._cells.recipes[cell.identity.recipe])
        if self._publisher is None or not result.digest:
            return result
        try:
            return self._publisher.publish(result)
        except (UpgraderError, OSError) as error:
            return unpublished_result(result, str(error), FailureClass.PUSH)

    def _find_published(self, definition: BuildDefinition) -> BuildResult | None:
        """The image that another builder has published. If the registry does not answer, the cell fails instead of
        being built.
        """
        if self._publisher is None:
            return None
        try:
            return self._publisher.find_published(definition)
        except (UpgraderError, OSError) as error:
            unknown = BuildResult(identity=definition.identity, state=CellState.RED, build_key=definition.key)
            return unpublished_result(unknown, str(error), FailureClass.PUSH)


def red_result(cell: Cell, error: UpgraderError | OSError, progress: Progress) -> BuildResult:
    """The result of a cell that ended with an error, which is reported as a whole."""
    failure = cell_failure(error)
    progress(f"{cell.identity}: {failure.kind}: {error}")
    return BuildResult(identity=cell.identity, state=CellState.RED, failure=failure)


def with_alternatives(results: Iterable[BuildResult], kept: Iterable[ImageRecord]) -> tuple[BuildResult, ...]:
    """The results; red cells have alternatives for their kernels: other cells, and stored images."""
    all_results = tuple(results)
    green = [result.identity for result in all_results if result.digest] + [record.identity for record in kept]
    return tuple(
        msgspec.structs.replace(result, alternatives=find_alternatives(result.identity, green))
        if result.state is CellState.RED
        else result
        for result in all_results
    )


def unpublished_result(result: BuildResult, why: str, kind: FailureClass) -> BuildResult:
    """The result of a cell whose image is built and could not be published."""
    failure = BuildFailure(kind=kind, first_error=why.partition("\n")[0])
    return msgspec.structs.replace(result, state=CellState.RED, failure=failure)
