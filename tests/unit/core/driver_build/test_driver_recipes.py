"""Recipes: what they refuse, which modules go together, what make is told."""

import msgspec
import pytest

from upgrader.core.driver_build.driver_recipes import Patch, Recipe, RecipeModule, UnsupportedKernels

GOOD = {
    "vendor": "nvidia",
    "package": "nvidia-kernel-dkms",
    "make": ["KERNEL_UNAME={kernel}", "NV_KERNEL_MODULES={modules}", "modules"],
    "modules": [
        {"name": "nvidia"},
        {"name": "nvidia-modeset", "needs": ["nvidia"]},
        {"name": "nvidia-uvm", "needs": ["nvidia"]},
        {"name": "nvidia-drm", "needs": ["nvidia-modeset"]},
    ],
}


PERSISTENCED = {"name": "persistenced", "package": "nvidia-persistenced", "program": "nvidia-persistenced"}


def recipe(**changes):
    return msgspec.convert({**GOOD, **changes}, Recipe)


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ([], ("nvidia", "nvidia-modeset", "nvidia-uvm", "nvidia-drm")),
        (["nvidia"], ("nvidia",)),
        (["nvidia-drm"], ("nvidia", "nvidia-modeset", "nvidia-drm")),
        (["nvidia-uvm", "nvidia"], ("nvidia", "nvidia-uvm")),
    ],
)
def test_modules_bring_those_that_they_need_in_load_order(wanted, taken):
    assert recipe().load_order(wanted) == taken


def test_a_module_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="no module nouveau; this recipe has nvidia, nvidia-modeset"):
        recipe().load_order(["nvidia", "nouveau"])


@pytest.mark.parametrize(
    ("said", "versions"),
    [({}, ()), ({"package": "", "version": "1"}, ("1",)), ({"package": "", "version": ["1", "2"]}, ("1", "2"))],
)
def test_a_source_beside_its_recipe_is_made_in_the_versions_that_it_says(said, versions):
    assert recipe(**said).versions == versions


def test_make_is_told_the_version_where_it_asks():
    told = recipe(make=["V={version}"]).make_arguments(kernel="k", modules=(), version="2.0")
    assert told == ("V=2.0",)


def test_make_is_told_kernel_and_modules_as_words_of_their_own():
    told = recipe().make_arguments(kernel="6.12.94+deb13-amd64", modules=("nvidia", "nvidia-uvm"), version="1")
    assert told == ("KERNEL_UNAME=6.12.94+deb13-amd64", "NV_KERNEL_MODULES=nvidia nvidia-uvm", "modules")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "green"}, "unknown field `colour`"),
        ({"vendor": "../x"}, "is not a name"),
        ({"version": "1.0"}, "either a `package`"),
        ({"package": ""}, "either a `package`"),
        ({"package": "Nvidia;rm"}, "Debian package"),
        ({"firmware": ["-oAPT::x"]}, "Debian package"),
        ({"flavour": "drm; reboot"}, "is not a name"),
        (
            {"modules": [{"name": "a", "optional": True}, {"name": "b", "needs": ["a"]}]},
            "module b is required and needs a, which is optional",
        ),
        ({"modules": []}, "at least one module"),
        ({"modules": [{"name": "a"}, {"name": "a"}]}, "listed twice"),
        ({"modules": [{"name": "a", "needs": ["b"]}, {"name": "b"}]}, "must precede it"),
        ({"modules": [{"name": "a/../b"}]}, "name of a module"),
        ({"make": ["{kernal}"]}, "not {kernal}"),
        ({"patches": [{"file": "../x", "kernels": ".*"}]}, "file of the recipe"),
        ({"patches": [{"file": "x.patch", "kernels": "("}]}, "no regular expression"),
        ({"unsupported": [{"kernels": "[", "reason": "x"}]}, "no regular expression"),
        ({"minutes": 0}, "at least 1"),
        ({"minutes": "long"}, "Expected `int`"),
    ],
)
def test_a_recipe_that_cannot_be_used_says_what_is_wrong(changes, words):
    with pytest.raises(msgspec.ValidationError) as caught:
        recipe(**changes)
    assert words in str(caught.value)


def test_patches_are_for_the_kernels_and_drivers_that_match_whole():
    patch = Patch(file="a.patch", kernels=r"6\.1\.0-.*", drivers=r"535\..*")
    assert patch.is_applicable("6.1.0-53-amd64", "535.261.03")
    assert not patch.is_applicable("16.1.0-53-amd64", "535.261.03")
    assert not patch.is_applicable("6.1.0-53-amd64", "550.163.01")


def test_a_refused_kernel_has_its_reason():
    made = Recipe(
        vendor="v",
        version="1",
        make=("all",),
        modules=(RecipeModule(name="m"),),
        unsupported=(UnsupportedKernels(kernels=".*-rt-amd64", reason="not for real time"),),
    )
    assert [made.explain_refusal(one) for one in ("6.1.0-50-rt-amd64", "6.1.0-50-amd64")] == ["not for real time", ""]


def test_the_packages_of_services_are_among_those_of_the_recipe():
    assert recipe(user_space=["nvidia-smi"], services=[PERSISTENCED]).packages == (
        "nvidia-kernel-dkms",
        "nvidia-smi",
        "nvidia-persistenced",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"services": [{**PERSISTENCED, "name": "dcgm"}]}, "dcgm"),
        ({"services": [{**PERSISTENCED, "package": "../x"}]}, "the name of a Debian package"),
        ({"services": [{**PERSISTENCED, "program": "usr/bin/x"}]}, "the name of a program"),
        ({"services": [{**PERSISTENCED, "program": ".."}]}, "the name of a program"),
        ({"services": [{**PERSISTENCED, "data": ["etc/../../x"]}]}, "a folder of a package"),
        ({"services": [{**PERSISTENCED, "data": ["usr/lib"]}]}, "a folder of a package"),
        ({"services": [PERSISTENCED, PERSISTENCED]}, "service persistenced is listed twice"),
        ({"services": [PERSISTENCED], "vendor": "sim"}, "belongs to the driver of nvidia, not of sim"),
    ],
)
def test_a_service_that_cannot_be_used(changes, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        recipe(**changes)
