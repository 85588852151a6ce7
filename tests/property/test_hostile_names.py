"""Kernels and drivers of any name, along the whole chain: nothing is taken for something else, and no two are one.

The kernel's name is whatever a node says, a DriverImage's whatever a person writes; the command line takes any bytes.
"""

import re
from pathlib import Path

import click
import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.support.driver_builds import identity as usual
from tests.support.driver_builds import kernel, layout, record
from tests.support.examples import examples
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import DriverImage
from upgrader.api.v1alpha1.driver_image import DriverImageSpec
from upgrader.cli.images.image_commands import build
from upgrader.core.driver_build.driver_builds import Identity, build_key
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.names import HostileNameError
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.registry.reference import parse_reference
from upgrader.stack.build_jobs import build_job, build_job_name
from upgrader.stack.settings import BuildSettings

TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # of the distribution specification
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
NASTY = st.text(alphabet=st.sampled_from("a0_.-+/:@$()`'\"\\ \n\0éA2df"), max_size=8)
TEXT = st.one_of(NASTY, st.text(), st.text(min_size=100, max_size=200), st.sampled_from(["..", "-x", ".x", "$(PATH)"]))
TOKENS = st.sampled_from(["", "a", "_", "__", "_5f", "5f", "_2d", "-", ".", "_2e", "a_", "_a", "a__b"])
IDENTITIES = st.builds(
    Identity, vendor=st.just("v"), recipe=TEXT, driver=TEXT, flavour=TEXT, kernel=TEXT, os=TEXT, arch=TEXT
)
ALIKE = st.builds(
    Identity, vendor=st.just("v"), recipe=TOKENS, driver=TOKENS, flavour=TOKENS, kernel=TOKENS, os=TOKENS, arch=TOKENS
)
RECIPES = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True)
REPOSITORY = "registry.example/drivers"


def tag_of(name):
    return name.rpartition(":")[2]


@examples(300)
@given(IDENTITIES)
@example(msgspec.structs.replace(usual(), driver="-535"))
@example(msgspec.structs.replace(usual(), driver=".535"))
@example(msgspec.structs.replace(usual(), kernel="\udcff"))
def test_every_tag_is_one(identity):
    for tag in (identity.tag, tag_of(packages_name(REPOSITORY, identity))):
        assert TAG.fullmatch(tag), tag


@examples(500)
@given(ALIKE, ALIKE)
@example(
    Identity(vendor="v", recipe="r", driver="-", kernel="k", os="o"),
    Identity(vendor="v", recipe="r", driver="_2d", kernel="k", os="o"),
)
def test_no_two_identities_share_a_tag_a_bundle_or_a_build_key(one, other):
    assume(one != other)
    assert packages_name(REPOSITORY, one) != packages_name(REPOSITORY, other)
    assert build_key(one, ()) != build_key(other, ())
    if one.recipe == other.recipe:
        assert one.tag != other.tag


@examples(300)
@given(IDENTITIES, IDENTITIES)
def test_no_two_long_ones_do_either(one, other):
    assume(one != other)
    assert packages_name(REPOSITORY, one) != packages_name(REPOSITORY, other)
    if one.recipe == other.recipe:
        assert one.tag != other.tag


@examples(300)
@given(IDENTITIES, RECIPES)
def test_an_image_is_in_its_recipes_repository_and_nowhere_else(identity, recipe):
    good = msgspec.structs.replace(identity, recipe=recipe)
    found = parse_reference(image_name(REPOSITORY, good))
    assert (found.name, found.tag, found.digest) == (f"{REPOSITORY}/{recipe}", good.tag, "")
    try:
        found = parse_reference(image_name(REPOSITORY, identity))
    except ConfigurationError:
        return
    assert (found.name, found.tag, found.digest) == (f"{REPOSITORY}/{identity.recipe}", identity.tag, "")


# ------------------------------------------------------------------------------------------------- builds in a cluster

ENVIRONMENT = {"COSIGN_PASSWORD": "secret", "PATH": "/bin"}


def expanded(argument):
    """What the kubelet makes of an argument: $(NAME) is the variable's value, $$ a dollar."""
    return re.sub(
        r"\$\$|\$\(([^()]*)\)",
        lambda found: "$" if found[0] == "$$" else ENVIRONMENT.get(found[1], found[0]),
        argument,
    )


@examples(300)
@given(IDENTITIES)
@example(msgspec.structs.replace(usual(), kernel="$(COSIGN_PASSWORD)"))
@example(msgspec.structs.replace(usual(), kernel="$$(COSIGN_PASSWORD)", driver="--push=evil"))
def test_a_build_pods_program_reads_the_very_names_that_were_meant(identity):
    settings = BuildSettings(
        repository=REPOSITORY, builder_image="b", signing="s", module_signing="m", insecure_registries=("r:1",)
    )
    image = DriverImage(
        metadata=ObjectMeta(name="a", uid="u"), spec=DriverImageSpec(vendor="nvidia", version="1", kernel="k")
    )
    job = build_job(image, identity, settings)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command, *words = [expanded(one) for one in container["args"]]
    assert command == "build"
    read = click.Context(build, resilient_parsing=True)
    options, rest, _ = build.make_parser(read).parse_args(args=words)
    wish = {name: options[name] for name in ("recipe", "driver", "kernel", "os", "repository", "packages")}
    assert rest == []
    assert wish == {
        "recipe": identity.recipe,
        "driver": identity.driver,
        "kernel": identity.kernel,
        "os": identity.os,
        "repository": REPOSITORY,
        "packages": packages_name(REPOSITORY, identity),
    }


@examples(200)
@given(TEXT, TEXT, st.integers(0, 99))
def test_a_jobs_name_is_one(version, release, attempt):
    spec = DriverImageSpec(vendor="nvidia", version=version, kernel=release)
    image = DriverImage(metadata=ObjectMeta(name="a", uid="u"), spec=spec)
    later = msgspec.structs.replace(image, status=msgspec.structs.replace(image.status, attempts=attempt + 1))
    now = msgspec.structs.replace(image, status=msgspec.structs.replace(image.status, attempts=attempt))
    assert LABEL.fullmatch(build_job_name(now))
    assert build_job_name(now) != build_job_name(later)


# --------------------------------------------------------------------------------------------------- files and commands


@examples(50)
@given(IDENTITIES)
def test_a_shelf_keeps_it_inside(tmp_path_factory, identity):
    root = tmp_path_factory.mktemp("shelf")
    image = layout(root / "image")
    shelf, key = Shelf(root / "store/own"), build_key(identity, ())
    shelf.add_image(image, record(image, key, identity=identity))
    found = shelf.find_record(key)
    assert found is not None
    assert found.identity == identity
    assert {path.name for path in root.iterdir()} == {"image", "store"}
    assert [path.name for path in (root / "store").iterdir()] == ["own"]


@examples(300)
@given(TEXT)
@example("6.1.0-50-amd64/../../x")
@example("6.1.0-50-amd64\n")
def test_a_kernel_of_an_archive_is_a_name_or_refused(release):
    """It becomes a folder (trees, images, boot checks), a word for apt, and a line for make."""
    try:
        found = kernel(release, headers=(), image=())
    except HostileNameError:
        return
    assert Path("/trees", f"headers-{found.release}").parent == Path("/trees")
    assert re.fullmatch(r"[0-9][a-z0-9+.-]*", found.release)


@examples(200)
@given(TEXT, TEXT)
def test_apt_gets_one_suite_and_one_component_as_they_were_meant(tmp_path_factory, suite, component):
    folder = tmp_path_factory.getbasetemp()
    (folder / "keyring").touch()
    archives = Archives(
        bases={"debian": "https://a.example/d/", "debian-security": "https://a.example/s/"}, keyring=folder / "keyring"
    )
    try:
        apt = Apt(folder / "apt", archives, [suite], [component])
    except HostileNameError:
        return
    assert (apt.suites, apt.components) == ((suite,), (component,))
    assert (len(suite.split()), len(component.split())) == (1, 1)
    assert apt.folder.parent == folder / "apt"
