"""Build keys: every input counts, nothing else does, and a definition can be built elsewhere."""

import msgspec
import pytest

from tests.support import driver_builds as made
from tests.support.driver_builds import DISCOVERY, PACKAGES, PROGRAMS, RECIPE, definition, folder, kernel, package
from upgrader.core.driver_build.driver_builds import build_key
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.drivers.recipe.definition import decode_definition, encode_definition


@pytest.fixture
def recipe(tmp_path):
    return folder(tmp_path / "nvidia-open")


def test_the_inputs_are_all_that_the_image_is_made_of(recipe):
    found = {
        (one.kind, one.name, one.version) for one in definition(recipe, modules=["nvidia"], signer="ab" * 32).inputs
    }
    assert found == {
        ("package", f"linux-headers-{made.RELEASE}", "1.0-1"),
        ("package", "linux-kbuild-6.12", "1.0-1"),
        ("package", "nvidia-open-kernel-dkms", "550.163.01-2"),
        ("package", "libnvidia-ml1", "550.163.01-2"),
        ("package", "firmware-nvidia-gsp", "550.163.01-2"),
        ("recipe", "nvidia-open", ""),
        ("recipe", "programs", ""),
        ("compiler", "gcc-14", "14.2.0-19"),
        ("base-image", "toolchain-trixie-gcc-14", ""),
        ("option", "modules", "nvidia"),
        ("option", "assembly", "2"),
        ("option", "module-signer", "ab" * 32),
        ("option", "buildah", "1.39.3"),
    }


def _changed(name):
    """The discovery with other contents of one package."""
    others = tuple(package(one.name, one.version, content="other") if one.name == name else one for one in PACKAGES)
    return {"discovery": msgspec.structs.replace(DISCOVERY, packages=others)}


CHANGES = {
    "source": _changed("nvidia-open-kernel-dkms"),
    "library": _changed("libnvidia-ml1"),
    "firmware": _changed("firmware-nvidia-gsp"),
    "headers": {"kernel": kernel(headers=(package(f"linux-headers-{made.RELEASE}", content="x"),))},
    "release": {"kernel": kernel(release="6.12.107+deb13-amd64")},
    "toolchain": {"toolchain": made.toolchain(packages=(package("gcc-14", "14.2.0-19"), package("make", "2")))},
    "compiler": {"toolchain": made.toolchain(packages=(package("gcc-14", "14.3.0-1"), package("make")))},
    "programs": {"builder": (msgspec.structs.replace(PROGRAMS, sha256="2" * 64), made.ASSEMBLER)},
    "modules": {"modules": ["nvidia"]},
    "signer": {"signer": "ab" * 32},
    "assembler": {"builder": (PROGRAMS, msgspec.structs.replace(made.ASSEMBLER, sha256="3" * 64))},
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_every_input_changes_the_key(recipe, name):
    keys = {definition(recipe).key, definition(recipe, **CHANGES[name]).key}
    assert len(keys) == 2


def test_the_recipes_files_change_the_key_and_where_they_lie_does_not(tmp_path):
    keys = [
        definition(folder(tmp_path / place / "nvidia-open", text=text)).key
        for place, text in [("a", "# one"), ("b", "# one"), ("a", "# two")]
    ]
    assert keys[0] == keys[1] != keys[2]


def test_the_kernels_own_image_is_booted_and_changes_no_key(recipe):
    other = definition(recipe, kernel=kernel(image=(package("linux-image-unsigned"),)))
    assert other.key == definition(recipe).key
    assert package("linux-image-unsigned") in other.packages


def test_the_key_is_over_what_the_documents_name(recipe):
    one = definition(recipe)
    assert one.key == build_key(one.identity, one.inputs)


def test_a_definition_can_be_carried_elsewhere(recipe):
    one = definition(recipe)
    again = decode_definition(encode_definition(one))
    assert (again, again.key) == (one, one.key)
    with pytest.raises(ConfigurationError, match="not a build definition"):
        decode_definition(b'{"identity": {}}')


def test_a_package_that_is_not_there_in_the_drivers_version_is_named_with_those_that_are(recipe):
    with pytest.raises(MissingPackageError, match=r"no archive has nvidia-open-kernel-dkms 999"):
        definition(recipe, driver="999")
    without = msgspec.structs.replace(DISCOVERY, packages=PACKAGES[:2])
    with pytest.raises(MissingPackageError, match="no archive has firmware-nvidia-gsp"):
        definition(recipe, discovery=without)


def test_a_module_that_the_recipe_has_not_is_refused(recipe):
    with pytest.raises(ConfigurationError, match="no module nouveau"):
        definition(recipe, modules=["nouveau"])


def test_a_source_beside_the_recipe_has_one_version(tmp_path):
    own = msgspec.structs.replace(RECIPE, package="", version="1.0", user_space=(), firmware=())
    recipe = folder(tmp_path / "own", own)
    assert definition(recipe, driver="1.0").source == ()
    with pytest.raises(ConfigurationError, match=r"own has version 1.0, not 2.0"):
        definition(recipe, driver="2.0")
