"""Values of driver builds for tests: packages, kernels, recipes, definitions; nothing is fetched or compiled."""

import hashlib
from pathlib import Path

from tests.support.image_registry import write_layout
from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.core.driver_build.driver_recipes import Recipe, RecipeModule
from upgrader.images.debian.values import ArchiveDiscovery, DebianKernel, Package
from upgrader.images.drivers.builder.image_store import ImageRecord
from upgrader.images.drivers.recipe.definition import define_image
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.toolchain import Toolchain
from upgrader.images.layout import Layout

RELEASE = "6.12.94+deb13-amd64"


def package(name, version="1.0-1", suite="trixie", content=""):
    return Package(
        name=name,
        version=version,
        arch="amd64",
        sha256=hashlib.sha256(f"{name} {version} {content}".encode()).hexdigest(),
        size=10,
        archive="debian",
        path=f"pool/main/x/{name}_{version}_amd64.deb",
        suites=(suite,),
    )


def kernel(release=RELEASE, os="trixie", **changes):
    facts = {
        "headers": (package(f"linux-headers-{release}"), package("linux-kbuild-6.12")),
        "image": (package(f"linux-image-{release}"),),
    }
    return DebianKernel(
        release=release, os=os, arch="amd64", flavour="amd64", compiler="gcc-14", **{**facts, **changes}
    )


def toolchain(os="trixie", **changes):
    packages = changes.get("packages", (package("gcc-14", "14.2.0-19"), package("make")))
    return Toolchain(os=os, compiler="gcc-14", packages=packages)


RECIPE = Recipe(
    vendor="nvidia",
    flavour="open",
    package="nvidia-open-kernel-dkms",
    make=("modules",),
    user_space=("libnvidia-ml1",),
    firmware=("firmware-nvidia-gsp",),
    modules=(RecipeModule(name="nvidia"), RecipeModule(name="nvidia-uvm", needs=("nvidia",))),
)
PACKAGES = tuple(package(name, "550.163.01-2") for name in RECIPE.packages)
DISCOVERY = ArchiveDiscovery(kernels=(kernel(),), packages=PACKAGES, indices={"trixie": "0" * 64})
ASSEMBLER = Input(kind="option", name="buildah", version="1.39.3", sha256="4" * 64)
PROGRAMS = Input(kind="recipe", name="programs", version="", sha256="1" * 64)


def folder(path: Path, recipe=RECIPE, text="# a recipe"):
    path.mkdir(parents=True, exist_ok=True)
    (path / "recipe.toml").write_text(text)
    return RecipeFolder(name=path.name, folder=path, recipe=recipe)


def definition(recipe: RecipeFolder, **changes):
    facts = {
        "driver": "550.163.01",
        "kernel": kernel(),
        "discovery": DISCOVERY,
        "toolchain": toolchain(),
        "builder": (PROGRAMS, ASSEMBLER),
    }
    return define_image(recipe, **{**facts, **changes})


def identity(release=RELEASE, driver="550.163.01", recipe="nvidia-open"):
    return Identity(
        vendor="nvidia", recipe=recipe, driver=driver, flavour="open", kernel=release, os="trixie", arch="amd64"
    )


def record(layout: Layout, key="a" * 64, **changes):
    facts = {"identity": identity(), "build_key": key, "digest": layout.image.digest, "seconds": 1.0, "verdicts": ()}
    return ImageRecord(**{**facts, **changes})


def layout(path: Path, data=b"layer"):
    write_layout(path, data, b"{}")
    return Layout(path)
