"""Which cells a matrix wants, which selectors lead nowhere, and what else builds for a kernel."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass, Identity, Verdict
from upgrader.core.driver_build.driver_matrix import (
    Cell,
    KernelFacts,
    Matrix,
    RecipeFacts,
    find_alternatives,
    select_cells,
)
from upgrader.core.driver_build.driver_report import build_report

KERNELS = [
    KernelFacts(release=release, os=os, arch="amd64")
    for release, os in [
        ("6.1.0-47-amd64", "bookworm"),
        ("6.1.0-50-amd64", "bookworm"),
        ("6.1.0-50-rt-amd64", "bookworm"),
        ("6.1.0-53-amd64", "bookworm"),
        ("6.12.94+deb13-amd64", "trixie"),
    ]
]
RECIPES = {
    "nvidia-open": RecipeFacts(
        vendor="nvidia",
        flavour="open",
        drivers={"bookworm": ["535.216.03", "535.261.03"], "trixie": ["550.163.01"]},
    ),
    "fakebridge": RecipeFacts(vendor="sim", flavour="", drivers={"bookworm": ["1.0"]}),
}


def matrix(*wanted):
    plain = {
        "components": ["main"],
        "distributions": [
            {"os": "bookworm", "suites": ["bookworm", "bookworm-security"]},
            {"os": "trixie", "suites": ["trixie"]},
        ],
        "cells": [{"recipe": "nvidia-open", "os": "bookworm", "drivers": ["newest"], **one} for one in wanted],
    }
    return msgspec.convert(plain, Matrix)


def named(found):
    return [(one.identity.driver, one.identity.kernel) for one in found]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kernels": ["6.1.0-50-amd64"]}, [("535.261.03", "6.1.0-50-amd64")]),
        ({"kernels": ["6.1.0-??-amd64"], "newest": 1}, [("535.261.03", "6.1.0-53-amd64")]),
        (
            {"kernels": ["6.1.0-5*-amd64"], "drivers": ["535.2[12]*", "535.261.03"], "newest": 2},
            [
                ("535.216.03", "6.1.0-50-rt-amd64"),
                ("535.216.03", "6.1.0-53-amd64"),
                ("535.261.03", "6.1.0-50-rt-amd64"),
                ("535.261.03", "6.1.0-53-amd64"),
            ],
        ),
        ({"kernels": ["6.12.94+deb13-amd64"], "os": "trixie"}, [("550.163.01", "6.12.94+deb13-amd64")]),
    ],
)
def test_selectors_choose_drivers_and_kernels_of_the_distribution(wanted, found):
    chosen, unmatched = select_cells(matrix(wanted), RECIPES, KERNELS)
    assert (named(chosen), unmatched) == (found, ())


def test_a_selector_that_selects_nothing_is_told():
    chosen, unmatched = select_cells(
        matrix({"kernels": ["6.1.0-47-amd64", "6.1.0-48-amd64"], "drivers": ["535.261.03", "999"]}), RECIPES, KERNELS
    )
    assert named(chosen) == [("535.261.03", "6.1.0-47-amd64")]
    assert [one.selector for one in unmatched] == ["999", "6.1.0-48-amd64"]


def test_a_cell_that_is_wanted_twice_is_one_and_the_first_entry_counts():
    first = {"kernels": ["6.1.0-50-amd64"], "modules": ["nvidia"]}
    chosen, _ = select_cells(matrix(first, {"kernels": ["6.1.0-*"]}), RECIPES, KERNELS)
    assert [one.modules for one in chosen if one.identity.kernel == "6.1.0-50-amd64"] == [("nvidia",)]
    assert len({one.identity for one in chosen}) == len(chosen) == 4


def test_a_recipe_or_distribution_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match=r"no recipe amdgpu; there are fakebridge, nvidia-open"):
        select_cells(matrix({"recipe": "amdgpu", "kernels": ["*"]}), RECIPES, KERNELS)
    with pytest.raises(msgspec.ValidationError, match="not one of the distributions"):
        matrix({"os": "sid", "kernels": ["*"]})


selectors = st.lists(st.sampled_from(["*", "6.1.0-??-amd64", "6.1.0-50-amd64", "nothing"]), max_size=3)


@given(st.lists(st.tuples(selectors, st.integers(0, 3)), max_size=4))
def test_cells_are_of_the_archive_each_once_and_the_same_again(wanted):
    made = matrix(*({"kernels": kernels, "newest": newest} for kernels, newest in wanted))
    chosen, unmatched = select_cells(made, RECIPES, KERNELS)
    assert select_cells(made, RECIPES, KERNELS) == (chosen, unmatched)
    assert list(chosen) == sorted(set(chosen))
    assert {one.identity.kernel for one in chosen} <= {one.release for one in KERNELS if one.os == "bookworm"}


def identity(recipe, driver, kernel="6.1.0-53-amd64", vendor="nvidia"):
    return Identity(vendor=vendor, recipe=recipe, driver=driver, kernel=kernel, os="bookworm")


def test_what_else_builds_for_the_kernel_is_of_the_same_vendor_and_the_very_kernel():
    red = identity("nvidia-open", "535.261.03")
    green = [
        red,
        identity("nvidia", "535.309.01"),
        identity("nvidia-open", "550.163.01"),
        identity("nvidia", "535.261.03", kernel="6.1.0-50-amd64"),
        identity("fakebridge", "1.0", vendor="sim"),
    ]
    assert find_alternatives(red, [*green, *green]) == ("nvidia 535.309.01", "nvidia-open 550.163.01")


def test_the_report_has_the_fields_that_programs_read():
    red = BuildResult(
        identity=identity("nvidia-open", "535.261.03"),
        state=CellState.RED,
        failure=BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments", symbol="pci_resize_resource"),
        build_key="ab",
        seconds=34.04,
        checks=(Verdict(check="vermagic", passed=True, reason=""), Verdict(check="sbom", passed=True, reason="")),
        alternatives=("nvidia 535.309.01",),
    )
    made = build_report([red], [], 61.26)
    assert msgspec.json.decode(msgspec.json.encode(made)) == {
        "cells": [
            {
                "vendor": "nvidia",
                "driver": "535.261.03",
                "flavour": "",
                "kernel": "6.1.0-53-amd64",
                "os": "bookworm",
                "state": "red",
                "failure": {"class": "compile", "symbol": "pci_resize_resource", "first_error": "too few arguments"},
                "alternatives": ["nvidia 535.309.01"],
                "digest": "",
                "build_key": "ab",
                "seconds": 34.0,
                "checks": {"vermagic": True, "crc": None, "signature": None, "boot": None},
                "image": "",
            }
        ],
        "unmatched": [],
        "seconds": 61.3,
    }


def test_cells_sort_so_that_results_do():
    assert Cell(identity=identity("a", "1")) < Cell(identity=identity("b", "1"))
