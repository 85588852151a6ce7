"""Many cells: whatever is wrong with one is its own, and what a registry has is not built again."""

import errno

import msgspec
import pytest

from tests.support import driver_builds as made
from tests.support.driver_builds import definition, folder, identity
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError, ProcessError, RegistryError
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.builder.sandbox import SandboxError
from upgrader.images.drivers.publish.build_matrix import Round

GOOD, BAD = Cell(identity=identity()), Cell(identity=identity(driver="535"))
PUSHED = "reg.example/drivers/nvidia-open@sha256:" + "b" * 64


class World:
    """Cells, workshop and registry at once; `trouble` is what the cell BAD meets, `at` where."""

    def __init__(self, place, trouble=None, at="build", there=None):
        self.recipes = {"nvidia-open": folder(place / "nvidia-open")}
        self.trouble, self.at, self.there = trouble, at, there
        self.built, self.said = [], []
        self.shelf = Shelf(place / "shelf")

    def _meet(self, at, one):
        if self.trouble is not None and at == self.at and one == BAD.identity:
            raise self.trouble

    def define_cell(self, cell):
        self._meet("definition", cell.identity)
        return msgspec.structs.replace(definition(self.recipes["nvidia-open"]), identity=cell.identity)

    def find_result(self, _definition):
        return None

    def build(self, found, _recipe):
        self._meet("build", found.identity)
        self.built.append(found.identity)
        return result(found, CellState.GREEN, "sha256:" + "a" * 64)

    def find_published(self, found):
        self._meet("find", found.identity)
        return self.there

    def publish(self, one):
        self._meet("publish", one.identity)
        return msgspec.structs.replace(one, digest=PUSHED)

    def run(self, *cells, publishes=False):
        publisher = self if publishes else None
        return Round(self, self, self.shelf, progress=self.said.append, publisher=publisher).run(cells)


def result(found, state, digest):
    return BuildResult(identity=found.identity, state=state, digest=digest, build_key=found.key)


TROUBLES = {
    "a disk that is full": (OSError(errno.ENOSPC, "No space left on device"), FailureClass.TRANSIENT),
    "a program that ended": (ProcessError("patch: Killed"), FailureClass.TRANSIENT),
    "no sandbox any more": (SandboxError("no root could be made"), FailureClass.TRANSIENT),
    "a recipe that cannot be used": (ConfigurationError("no source for dkms"), FailureClass.UNSUPPORTED),
    "no such package": (MissingPackageError("no headers", name="linux-headers-1"), FailureClass.HEADERS_MISSING),
}


@pytest.mark.parametrize("at", ["definition", "build"])
@pytest.mark.parametrize("name", sorted(TROUBLES))
def test_a_cell_that_cannot_be_built_stops_no_other(tmp_path, name, at):
    trouble, kind = TROUBLES[name]
    world = World(tmp_path, trouble, at)
    red, green = world.run(BAD, GOOD)
    assert (green.state, world.built) == (CellState.GREEN, [GOOD.identity])
    failure = BuildFailure(kind=kind, first_error=str(trouble))
    assert (red.identity, red.state, red.failure, red.digest) == (BAD.identity, CellState.RED, failure, "")
    assert world.said == [f"{BAD.identity}: {kind}: {trouble}"]


@pytest.mark.parametrize("trouble", [RegistryError("503"), OSError("no auth file"), ConfigurationError("no such key")])
@pytest.mark.parametrize("at", ["find", "publish"])
def test_a_registry_that_does_not_answer_makes_one_cell_red_and_to_be_tried_again(tmp_path, trouble, at):
    world = World(tmp_path, trouble, at)
    red, green = world.run(BAD, GOOD, publishes=True)
    assert (red.state, red.failure) == (CellState.RED, BuildFailure(kind=FailureClass.PUSH, first_error=str(trouble)))
    assert (green.state, green.digest) == (CellState.GREEN, PUSHED)
    assert (BAD.identity in world.built, bool(red.digest)) == ((at == "publish"),) * 2


def test_what_another_builder_has_published_is_not_built(tmp_path):
    world = World(tmp_path)
    world.there = result(world.define_cell(GOOD), CellState.UNCHANGED, PUSHED)
    assert world.run(GOOD, publishes=True) == (world.there,)
    assert world.built == []


def test_a_fault_of_the_program_is_no_fault_of_the_driver(tmp_path):
    with pytest.raises(ZeroDivisionError):
        World(tmp_path, ZeroDivisionError()).run(BAD, GOOD)


def test_a_shelf_that_is_something_else_is_said_before_anything_is_built(tmp_path):
    world = World(tmp_path)
    (tmp_path / "shelf/upgrader/records").mkdir(parents=True)
    (tmp_path / "shelf/index.json").write_text("[]")
    (tmp_path / f"shelf/upgrader/records/{'a' * 64}.json").write_bytes(
        msgspec.json.encode(made.record(made.layout(tmp_path / "one")))
    )
    with pytest.raises(ConfigurationError, match="not an OCI layout"):
        world.run(GOOD)
    assert world.built == []
