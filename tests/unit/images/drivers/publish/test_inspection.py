"""What is found in an image without building it again, and each way in which it is not what it says of itself."""

import msgspec
import pytest

from tests.support.driver_images import PLACE, changed, described, driver_files, known_headers, manifest, whole_image
from tests.support.image_registry import digest_of
from tests.support.signing_keys import make_key
from tests.support.trusting import IDENTITY, INPUTS
from upgrader.core.driver_build.driver_builds import CheckName, build_key
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.publish.inspection import INSIDE
from upgrader.images.drivers.publish.verification import InspectionOptions, examine_store
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.labels import identity_labels
from upgrader.images.layout import LayoutWriter
from upgrader.images.trust import BUILD_KEY

KEY = build_key(IDENTITY, INPUTS)
MODULE = f"{PLACE}/nvidia.ko"


@pytest.fixture
def files(tmp_path):
    return driver_files(tmp_path / "modules")


@pytest.fixture
def look(tmp_path):
    """The result for a folder with an image, in a cache that has the kernel's headers."""
    known_headers(tmp_path / "cache")

    def ask(folder, digest="", given=(), cache=tmp_path / "cache", **how):
        kernels = Site(WorkspaceSettings(cache=cache / "upgrader"), print).kernel_trees()
        return examine_store(folder, digest, dict(given), InspectionOptions(kernels=kernels, **how))

    return ask


def passed(found):
    return {one.check: one.passed for one in found.verdicts}


def failed(found):
    return {one.check: one.reason for one in found.failed_checks}


def test_a_whole_image_passes_all_that_can_be_known_of_it_here(look, files, tmp_path):
    layout = whole_image(tmp_path / "image", files)
    found = look(tmp_path / "image")
    assert (found.identity, found.failed_checks) == (IDENTITY, ())
    assert set(found.by_label) == set(IDENTITY.__struct_fields__)
    assert found.image == f"oci:{tmp_path / 'image'}@{layout.image.digest}"
    assert passed(found) == {
        CheckName.CONTENTS: True,
        CheckName.IMAGE_SIGNATURE: None,
        CheckName.PROVENANCE: None,
        CheckName.SBOM: None,
        CheckName.MANIFEST: True,
        CheckName.VERMAGIC: True,
        CheckName.CRC: True,
        CheckName.VERSIONS: True,
        CheckName.SIGNATURE: None,
        CheckName.BOOT: None,
    }


def test_without_the_kernels_packages_its_symbols_are_not_guessed(look, files, tmp_path):
    whole_image(tmp_path / "image", files)
    found = look(tmp_path / "image", cache=tmp_path / "empty", boots=True)
    verdicts = {one.check: one for one in found.verdicts}
    assert found.failed_checks == ()
    for check, what in ((CheckName.VERMAGIC, "headers are"), (CheckName.CRC, "headers are"), (CheckName.BOOT, "is")):
        assert verdicts[check].passed is None
        assert f"{what} not in the store: no archive was read yet" in verdicts[check].reason
    assert verdicts[CheckName.VERSIONS].passed


def test_an_image_that_takes_files_of_its_own_away_again(look, files, tmp_path):
    whole_image(tmp_path / "image", {**files, "lib/.wh.modules": b""})
    said = failed(look(tmp_path / "image"))
    assert list(said) == [CheckName.MANIFEST]
    assert said[CheckName.MANIFEST].endswith("has the whiteout driver/lib/.wh.modules")


def test_crcs_of_another_kernel_are_named(look, tmp_path):
    whole_image(tmp_path / "image", driver_files(tmp_path / "modules", layout=1))
    assert list(failed(look(tmp_path / "image"))) == [CheckName.CRC]


def test_modules_of_another_driver(look, tmp_path):
    whole_image(tmp_path / "image", driver_files(tmp_path / "modules", version="1.2.3"))
    assert list(failed(look(tmp_path / "image"))) == [CheckName.VERSIONS]


def test_a_certificate_that_nobody_signed_by(look, files, tmp_path):
    whole_image(tmp_path / "image", files)
    certificate = make_key(tmp_path)[1]
    assert failed(look(tmp_path / "image", certificate=certificate)) == {CheckName.SIGNATURE: "nvidia.ko is not signed"}


def edited(**changes):
    def change(data):
        made = msgspec.json.decode(data)
        return msgspec.json.encode({**made, **changes})

    return change


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (MODULE, lambda data: data[:-1] + b"!", f"{MODULE} has another sha256 than its manifest"),
        (MODULE, lambda data: data[:200], f"{MODULE} cannot be read: "),
        ("manifest.json", edited(kernel="6.1.0-56-amd64"), "has the kernel '6.1.0-56-amd64' and not '6.1.0-50-amd64'"),
        ("manifest.json", edited(version="1"), "its manifest has the driver '1' and not '535.261.03'"),
        ("manifest.json", edited(buildKey="0" * 64), f"its manifest has the build key {'0' * 64}, its label {KEY}"),
        ("manifest.json", edited(inputs=[]), "the inputs of its manifest do not give its build key"),
        ("manifest.json", edited(modules=[]), f"its manifest and its files differ in {MODULE}"),
        ("manifest.json", lambda _: b"{}", "this is not an image of a driver with modules"),
        (
            "load-order",
            lambda data: data + b"module evil x /evil.ko\n",
            "/driver/load-order does not match its manifest",
        ),
        ("modules.sha256", lambda _: b"", "/driver/modules.sha256 does not match its manifest"),
    ],
    ids=[
        *("a module changed", "a module cut off", "another kernel", "another driver", "another key", "no inputs"),
        *("no modules", "no manifest", "another load order", "no checksums"),
    ],
)
def test_what_does_not_agree_inside_fails_the_manifest_and_nothing_else_is_claimed(
    look, files, tmp_path, name, change, reason
):
    whole_image(tmp_path / "image", changed(files, name, change))
    found = look(tmp_path / "image")
    assert list(failed(found)) == [CheckName.MANIFEST]
    assert reason in failed(found)[CheckName.MANIFEST]
    assert {check: passed(found)[check] for check in INSIDE[1:]} == dict.fromkeys(INSIDE[1:])


def test_a_module_that_the_manifest_does_not_name(look, files, tmp_path):
    whole_image(tmp_path / "image", {**files, f"{PLACE}/evil.ko": b"x"})
    assert failed(look(tmp_path / "image")) == {
        CheckName.MANIFEST: f"its manifest and its files differ in {PLACE}/evil.ko"
    }


def test_links_are_not_followed(look, files, tmp_path):
    """An image's maker chooses where links lead on the machine of whoever looks."""
    less = {name: data for name, data in files.items() if name != MODULE}
    (tmp_path / "outside.ko").write_bytes(files[MODULE])
    whole_image(tmp_path / "one", less, links={MODULE: str(tmp_path / "outside.ko")})
    assert failed(look(tmp_path / "one")) == {CheckName.MANIFEST: f"{MODULE} is not a regular file"}
    rest = {name: data for name, data in files.items() if name != "manifest.json"}
    (tmp_path / "outside.json").write_bytes(files["manifest.json"])
    whole_image(tmp_path / "two", rest, links={"manifest.json": str(tmp_path / "outside.json")})
    assert failed(look(tmp_path / "two")) == {CheckName.MANIFEST: "it has no /driver/manifest.json"}


def test_a_manifest_that_names_files_outside_of_the_image(look, files, tmp_path):
    made = manifest(tmp_path / "modules", place="../../..")
    whole_image(tmp_path / "image", {MODULE: files[MODULE], **described(made)})
    assert "its manifest and its files differ" in failed(look(tmp_path / "image"))[CheckName.MANIFEST]


def test_what_is_no_driver_image(look, tmp_path):
    whole_image(tmp_path / "image", {"other": b"x"})
    assert failed(look(tmp_path / "image")) == {CheckName.MANIFEST: "it has no /driver/manifest.json"}


# Whose image


def test_labels_say_whose_image_it_is_where_nobody_does(look, files, tmp_path):
    whole_image(tmp_path / "image", files)
    assert look(tmp_path / "image", given={"kernel": IDENTITY.kernel}).by_label == tuple(
        name for name in IDENTITY.__struct_fields__ if name != "kernel"
    )


def test_an_image_without_labels_is_looked_at_when_somebody_says_whose_it_is(look, files, tmp_path):
    whole_image(tmp_path / "image", files, labels={BUILD_KEY: KEY})
    refused = "its labels lack its recipe and driver and kernel; use --recipe, --driver, --kernel"
    assert failed(look(tmp_path / "image")) == {CheckName.CONTENTS: refused}
    given = {name: getattr(IDENTITY, name) for name in IDENTITY.__struct_fields__}
    assert look(tmp_path / "image", given=given).failed_checks == ()


def test_an_image_for_another_kernel_than_was_said(look, files, tmp_path):
    whole_image(tmp_path / "image", files, labels={BUILD_KEY: KEY, **identity_labels(IDENTITY)} | {"other": "x"})
    with pytest.raises(ConfigurationError, match="none of the images"):
        look(tmp_path / "image", given={"kernel": "6.1.0-56-amd64"})


def test_one_of_several_is_named_by_digest(look, files, tmp_path):
    folder = tmp_path / "store"
    one = whole_image(tmp_path / "one", files)
    two = whole_image(tmp_path / "two", {**files, "more": b"x"})
    join(folder, one, two)
    with pytest.raises(ConfigurationError, match="2 of the images") as raised:
        look(folder)
    assert two.image.digest in raised.value.details
    assert look(folder, two.image.digest).image == f"oci:{folder}@{two.image.digest}"
    with pytest.raises(ConfigurationError, match="none of the images"):
        look(folder, digest_of(b"another"))
    with pytest.raises(ConfigurationError, match="contains no OCI layout"):
        look(tmp_path / "nowhere")


def join(folder, *layouts):
    writer = LayoutWriter(folder)
    for layout in layouts:
        for blob in (*layout.blobs, layout.image):
            writer.blob_path(blob).write_bytes(layout.blob_path(blob).read_bytes())
    index = {"schemaVersion": 2, "manifests": [one.image for one in layouts]}
    (folder / "index.json").write_bytes(msgspec.json.encode(index))
    assert len(Shelf(folder).list_records()) == 0


@pytest.mark.parametrize("part", [0, 1], ids=["layer", "configuration"])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-9], lambda _: b"", lambda data: data.replace(b"6.1", b"6.2")],
    ids=["cut off", "empty", "another"],
)
def test_a_store_with_a_changed_part(look, files, tmp_path, part, damage):
    layout = whole_image(tmp_path / "image", files)
    path = layout.blob_path(layout.blobs[part])
    path.write_bytes(damage(path.read_bytes()))
    reason = "a part of it is missing, or differs from its digest"
    assert failed(look(tmp_path / "image")) == {CheckName.CONTENTS: reason}
    path.unlink()
    assert failed(look(tmp_path / "image")) == {CheckName.CONTENTS: reason}
