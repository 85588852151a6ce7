"""What a workshop makes of trouble that passes: a red cell that is tried again, and never remembered."""

import pytest

from tests.support.driver_builds import definition, folder
from upgrader.core.driver_build.build_results import CellState
from upgrader.core.driver_build.driver_builds import CheckName, FailureClass, Verdict
from upgrader.images.boot.values import Boot
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.images.drivers.builder.cell_build import BuildFolders, Workshop, boot_failure
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.builder.sandbox import SandboxError


@pytest.fixture
def shop(tmp_path):
    with BuildBudget(tmp_path / "budget", cores=1, memory_mib=1000) as budget:
        yield Workshop(
            places=BuildFolders(cache=tmp_path / "cache", logs=tmp_path / "logs"),
            packages=PackageStore(tmp_path / "packages"),
            shelf=Shelf(tmp_path / "shelf"),
            budget=budget,
            progress=lambda _line: None,
        )


def test_a_package_that_a_mirror_has_lost_is_asked_for_again(tmp_path, shop):
    recipe = folder(tmp_path / "nvidia-open")
    wanted = definition(recipe)
    red = shop.build(wanted, recipe)
    assert (red.state, red.failure.kind) == (CellState.RED, FailureClass.TRANSIENT)
    assert red.failure.first_error.startswith("gcc-14 14.2.0-19 is not in ")
    assert shop.find_result(wanted) is None


def test_a_machine_that_nothing_can_be_compiled_on_is_said_before_any_cell(tmp_path, shop):
    shop.check_machine()  # nothing was unpacked yet
    (tmp_path / "cache/trees/toolchain-trixie:gcc").mkdir(parents=True)
    with pytest.raises(SandboxError, match="cannot be mounted"):
        shop.check_machine()


def seen(*, undecided):
    return Boot(
        release="6.1.0-50-amd64",
        accelerator="tcg",
        loads=(),
        finished=not undecided,
        overdue=undecided,
        console="",
        seconds=300.0,
        undecided=undecided,
    )


REFUSED = Verdict(check=CheckName.BOOT, passed=False, reason="6.1.0-50-amd64: nvidia.ko was not reached")


@pytest.mark.parametrize(("undecided", "kind"), [(True, FailureClass.TRANSIENT), (False, FailureClass.BOOT)])
def test_only_a_kernel_that_answered_has_refused_a_driver(undecided, kind):
    broken = boot_failure(REFUSED, seen(undecided=undecided))
    assert (broken.failure.kind, broken.failure.final) == (kind, kind is FailureClass.BOOT)
    assert broken.failure.first_error == REFUSED.reason


def test_a_boot_that_passed_breaks_nothing():
    assert boot_failure(Verdict(check=CheckName.BOOT, passed=True, reason="loaded"), seen(undecided=False)) is None
