"""Services of an image: the package that fits, their entries, and which versions are refused."""

import msgspec
import pytest

from tests.support.driver_builds import DISCOVERY, PACKAGES, RECIPE, definition, folder, kernel, package
from upgrader.core.driver_build.driver_recipes import RecipeService
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.drivers.builder.assembly import lay_files
from upgrader.images.drivers.recipe.services import find_service_faults, service_lines, shipped_services
from upgrader.process import run

DRIVER = "550.163.01"
NVSWITCH = "usr/share/nvidia/nvswitch"
SERVICES = (
    RecipeService(name="fabricmanager", package="nvidia-fabricmanager", program="nv-fabricmanager", data=(NVSWITCH,)),
    RecipeService(name="persistenced", package="nvidia-persistenced", program="nvidia-persistenced"),
)


def serving(**versions):
    """The recipe with services, and the archive with one package of each in these versions."""
    brought = [package(name.replace("_", "-"), version) for name, version in versions.items()]
    discovery = msgspec.structs.replace(DISCOVERY, packages=(*PACKAGES, *brought))
    return {"recipe": msgspec.structs.replace(RECIPE, services=SERVICES)}, {"discovery": discovery}


def define(path, fabric=f"{DRIVER}-1", persistenced=f"{DRIVER}-1"):
    recipe, changes = serving(nvidia_fabricmanager=fabric, nvidia_persistenced=persistenced)
    made = folder(path / "nvidia-open", **recipe)
    return made, definition(made, **changes)


def lay(path, made, defined, programs):
    """The files of an image whose packages hold these programs."""
    files = path / "files"
    (files / "usr/bin").mkdir(parents=True)
    for name, text in programs.items():
        (files / "usr/bin" / name).write_text(text)
    return files, shipped_services(made, defined.services, files)


GOOD = {"nv-fabricmanager": f"version {DRIVER}\0", "nvidia-persistenced": "version 550.90.07\0"}


def test_persistenced_of_the_branch_is_taken_and_its_version_is_shipped(tmp_path):
    made, defined = define(tmp_path, persistenced="550.90.07-2")
    files, services = lay(tmp_path, made, defined, GOOD)
    assert list(find_service_faults(services, DRIVER, files)) == []
    assert service_lines(services).splitlines() == [
        f"fabricmanager {DRIVER} exact required usr/bin/nv-fabricmanager",
        "persistenced 550.90.07 branch optional usr/bin/nvidia-persistenced",
    ]
    assert {entry.name for entry in defined.inputs} >= {"nvidia-fabricmanager", "nvidia-persistenced"}
    assert set(defined.services) <= set(defined.packages)


@pytest.mark.parametrize(
    ("versions", "named"),
    [
        ({"fabric": "550.90.07-1"}, "nvidia-fabricmanager"),
        ({"fabric": "590.48.01-1"}, "nvidia-fabricmanager"),
        ({"persistenced": "535.171.04-1~deb12u1"}, "nvidia-persistenced"),
    ],
)
def test_a_service_without_a_version_that_fits_is_no_build(tmp_path, versions, named):
    with pytest.raises(MissingPackageError, match=f"no archive has {named} in a version for driver {DRIVER}"):
        define(tmp_path, **versions)


def test_the_own_version_of_the_driver_has_priority_over_a_newer_one_of_the_branch(tmp_path):
    _, changes = serving(nvidia_fabricmanager=f"{DRIVER}-1", nvidia_persistenced=f"{DRIVER}-1")
    newer = package("nvidia-persistenced", "550.200.01-1")
    found = msgspec.structs.replace(changes["discovery"], packages=(*changes["discovery"].packages, newer))
    assert found.service_package("persistenced", "nvidia-persistenced", DRIVER, "trixie").version == f"{DRIVER}-1"
    assert found.service_package("persistenced", "nvidia-persistenced", "550.1", "trixie") == newer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "550.90.07"}, "service fabricmanager has version 550.90.07"),
        ({"version": ""}, "has the version ''"),
        ({"program": "usr/bin/../../etc/passwd"}, "and the program 'usr/bin/../../etc/passwd'"),
        ({"program": "usr/bin/absent"}, "service fabricmanager has no program usr/bin/absent"),
        ({"program": "usr/bin/link"}, "service fabricmanager has no program usr/bin/link"),
        ({"program": "usr/bin/old"}, f"usr/bin/old does not contain its version {DRIVER}"),
        ({"sha256": "0" * 64}, "has another digest than the manifest"),
    ],
)
def test_a_manifest_or_a_program_that_is_wrong_or_forged(tmp_path, changes, words):
    made, defined = define(tmp_path)
    files, services = lay(tmp_path, made, defined, {**GOOD, "nvidia-persistenced": DRIVER, "old": "version 535.1"})
    (tmp_path / "outside").write_text(DRIVER)
    (files / "usr/bin/link").symlink_to(tmp_path / "outside")
    forged = (msgspec.structs.replace(services[0], **changes), services[1])
    (fault,) = find_service_faults(forged, DRIVER, files)
    assert words in fault


def test_an_image_without_files_has_no_programs(tmp_path):
    made, defined = define(tmp_path)
    _, services = lay(tmp_path, made, defined, {})
    assert len(list(find_service_faults(services, DRIVER, None))) == 2


class Packages:
    """A store with packages that hold a program, its data, and what is not shipped."""

    def __init__(self, path):
        self._path = path

    def fetch(self, wanted):
        tree, deb = self._path / wanted.name, self._path / f"{wanted.name}.deb"
        program = {"nvidia-fabricmanager": "nv-fabricmanager"}.get(wanted.name, wanted.name)
        for file in (
            f"usr/bin/{program}",
            f"{NVSWITCH}/fabricmanager.cfg",
            "usr/share/doc/x",
            "etc/y",
            "lib/z.service",
        ):
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(wanted.name)
        (tree / f"usr/bin/{program}").chmod(0o755)
        (tree / "DEBIAN").mkdir()
        control = f"Package: {wanted.name}\nVersion: {wanted.version}\nArchitecture: amd64\n"
        (tree / "DEBIAN/control").write_text(f"{control}Maintainer: x <x@example.org>\nDescription: x\n")
        run(["dpkg-deb", "--build", tree, deb], timeout=20)
        return deb


def test_programs_and_data_of_services_are_laid_and_other_data_is_not(tmp_path):
    made, defined = define(tmp_path)
    (tmp_path / "store").mkdir()
    lay_files(defined, made, Packages(tmp_path / "store"), tmp_path / "files", tmp_path / "work")
    files = [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "files")) for path in files} == {
        "usr/bin/nv-fabricmanager",
        "usr/bin/nvidia-persistenced",
        "usr/bin/libnvidia-ml1",
        "usr/bin/firmware-nvidia-gsp",
        f"{NVSWITCH}/fabricmanager.cfg",
    }


def test_a_kernel_without_services_needs_no_package(tmp_path):
    assert definition(folder(tmp_path / "nvidia-open"), kernel=kernel()).services == ()
