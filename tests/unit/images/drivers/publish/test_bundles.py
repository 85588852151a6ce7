"""A bundle of packages is held against this builder's own recipe: what it says of itself counts for nothing."""

import json

import msgspec
import pytest

from tests.support import driver_builds as made
from tests.support.driver_builds import definition, folder, kernel, package
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.names import HostileNameError
from upgrader.images.drivers.builder.assembly import PROGRAMS, assembler_input, programs_input
from upgrader.images.drivers.publish.bundles import BundledCell
from upgrader.images.drivers.recipe.definition import decode_definition, encode_definition


@pytest.fixture
def root(tmp_path):
    for name in PROGRAMS:
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def recipe(root):
    return folder(root / "nvidia-open")


@pytest.fixture
def honest(root, recipe):
    return definition(recipe, builder=(programs_input(root), assembler_input()))


@pytest.fixture
def opened(root, recipe):
    def open_one(found, signer=""):
        bundled = BundledCell(decode_definition(encode_definition(found)), {recipe.name: recipe}, root, signer=signer)
        return bundled.define_cell(bundled.cell)

    return open_one


def test_what_was_packed_with_the_same_recipe_is_built(opened, honest):
    assert opened(honest) == honest


def test_buildah_is_of_the_machine_that_assembles(opened, honest, root, recipe):
    elsewhere = definition(recipe, builder=(programs_input(root), made.ASSEMBLER))
    assert (opened(elsewhere), opened(elsewhere).key == elsewhere.key) == (honest, False)


FORGED = package("nvidia-open-kernel-dkms", "550.163.01-2", content="forged")
FORGERIES = {
    "another source under the inputs of the real one": {"source": (FORGED,)},
    "a package that no recipe asks for": {"user_space": (*made.PACKAGES[1:], package("evil"))},
    "other headers": {"kernel": kernel(headers=(package("linux-headers-x", content="forged"),))},
    "another compiler": {"toolchain": made.toolchain(packages=(package("gcc-14", content="forged"),))},
    "no user space": {"user_space": ()},
    "modules out of order": {"modules": ("nvidia-uvm", "nvidia")},
    "a module without what it needs": {"modules": ("nvidia-uvm",)},
    "no inputs": {"inputs": ()},
}


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_a_forged_bundle_is_refused(opened, honest, name):
    with pytest.raises(ConfigurationError, match="this builder's recipe"):
        opened(msgspec.structs.replace(honest, **FORGERIES[name]))


def test_another_recipe_of_the_same_name_is_refused(opened, root, recipe, honest):
    other = definition(
        folder(root.parent / "else/nvidia-open", text="# other"), builder=(programs_input(root), made.ASSEMBLER)
    )
    assert other.identity == honest.identity
    with pytest.raises(ConfigurationError, match="builder's recipe: inputs"):
        opened(other)


def test_modules_are_signed_by_whom_the_bundle_says_or_not_built(opened, root, recipe):
    facts = {"builder": (programs_input(root), assembler_input())}
    signed, unsigned = definition(recipe, signer="a" * 64, **facts), definition(recipe, **facts)
    assert opened(signed, signer="a" * 64) == signed
    for found, signer in [(signed, ""), (signed, "b" * 64), (unsigned, "a" * 64)]:
        with pytest.raises(ConfigurationError, match="this builder signs them with"):
            opened(found, signer=signer)


ESCAPE = "../../../escape"


@pytest.mark.parametrize(
    "path",
    [
        ("toolchain", "compiler"),
        ("toolchain", "os"),
        ("kernel", "release"),
        ("kernel", "os"),
        ("kernel", "arch"),
        ("identity", "kernel"),
        ("identity", "recipe"),
        ("identity", "driver"),
        ("identity", "vendor"),
        ("identity", "flavour"),
        ("modules", 0),
        ("signer",),
        ("source", 0, "name"),
        ("user_space", 0, "path"),
    ],
    ids=str,
)
def test_no_name_of_a_definition_leads_out_of_a_folder(honest, path):
    data = json.loads(encode_definition(honest))
    *way, last = path
    place = data
    for step in way:
        place = place[step]
    place[last] = ESCAPE
    with pytest.raises(ConfigurationError):
        decode_definition(json.dumps(data).encode())


def test_a_name_that_is_none_is_called_so(honest):
    with pytest.raises(HostileNameError, match="escape"):
        msgspec.structs.replace(honest, modules=(ESCAPE,))


def test_a_kernel_of_another_release_than_the_identity(honest):
    with pytest.raises(ConfigurationError, match="does not match the kernel"):
        msgspec.structs.replace(honest, kernel=kernel("6.12.1-amd64"))
