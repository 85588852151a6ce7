"""`upgrader images verify` on a real registry with a real cosign: what was signed, and each tampered copy of it."""

import asyncio
import json
import uuid

import msgspec
import pytest
from click.testing import CliRunner

from tests.support.driver_images import driver_files, known_headers, whole_image
from tests.support.trusting import IDENTITY, INPUTS, facts, key_pair
from upgrader.cli.main import program
from upgrader.core.errors import RegistryError, UncheckedError, UnverifiedError
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import evidence, publish_signatures, sbom, statements

pytestmark = pytest.mark.images

TRUSTED = {"contents": True, "image-signature": True, "provenance": True, "sbom": True}
INSIDE = {"manifest": True, "vermagic": True, "crc": True, "versions": True, "signature": None, "boot": None}


class Lab:
    """A signed image in a registry, and the command that looks at it."""

    def __init__(self, registry, folder, *, signing, public, cosign, cosign_program, patch):
        self.registry = registry
        self.folder = folder
        self.signing, self.public, self.cosign = signing, public, cosign
        self.name = f"{registry.host}/drivers/t{uuid.uuid4().hex}"
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("UPGRADER_COSIGN", str(cosign_program))
        known_headers(folder / "cache")
        self.files = {**driver_files(folder / "modules"), "nonce": self.name.encode()}
        self.image = self.push(self.files, tag="1")
        self.sign(self.image)

    def asking(self, work):
        async def connected():
            async with RegistryClient(insecure=(self.registry.host,)) as client:
                return await work(client)

        return asyncio.run(connected())

    def push(self, files, tag, **how):
        layout = whole_image(self.folder / f"image-{uuid.uuid4().hex}", files, **how)
        return self.asking(lambda client: client.push(layout, f"{self.name}:{tag}"))

    def facts(self, image, **changes):
        return facts(image.partition("@")[2], files=(), **changes)

    def sign(self, image):
        self.asking(
            lambda client: publish_signatures(
                image, self.facts(image), key=self.signing, cosign=self.cosign, registry=client
            )
        )

    def hang(self, image, statement, kind):
        async def work(client):
            await evidence.attach_bundle(client, image, await self.cosign.sign(statement, kind, self.signing))

        self.asking(work)

    def manifest(self):
        return json.loads(self.asking(lambda client: client.get_manifest(self.image)).data)

    def blob(self, digest):
        return self.registry.blob(digest)

    def verify(self, image, *words, public=None):
        given = ["--public-key", str(public or self.public), "--insecure-registry", self.registry.host]
        return CliRunner().invoke(program, ["images", "verify", image, *given, *words])

    def checks(self, image, *words, **how):
        ended = self.verify(image, *words, "--output", "json", **how)
        said = json.loads(ended.stdout)
        wrong = [one["check"] for one in said["checks"] if one["passed"] is False]
        without = UnverifiedError.exit_code if wrong else UncheckedError.exit_code
        assert ended.exit_code == (0 if said["verified"] else without)
        assert (f"is not valid; failed checks: {', '.join(wrong)}" in ended.stderr) is bool(wrong)
        return {one["check"]: one["passed"] for one in said["checks"]}

    def failed(self, image, *words, **how):
        return {check for check, passed in self.checks(image, *words, **how).items() if passed is False}


@pytest.fixture
def lab(registry_on_loopback, tmp_path, signing, keys, cosign, cosign_program, monkeypatch):
    with monkeypatch.context() as patch:
        yield Lab(
            registry_on_loopback,
            tmp_path,
            signing=signing,
            public=keys[1],
            cosign=cosign,
            cosign_program=cosign_program,
            patch=patch,
        )


def test_a_signed_image_by_tag_and_by_digest(lab):
    for image in (f"{lab.name}:1", lab.image, lab.image.replace("@", ":1@")):
        assert lab.checks(image) == TRUSTED | INSIDE


def test_the_table_says_whose_image_it_was_taken_for_and_by_whose_word(lab):
    ended = lab.verify(f"{lab.name}:1", "--driver", IDENTITY.driver)
    assert ended.exit_code == 0
    assert f"assumed identity {IDENTITY}; vendor, recipe, flavour, kernel, os, arch from its labels" in ended.stderr
    assert [line.split()[:2] for line in ended.stdout.splitlines()[2:]] == [
        *([name, "yes"] for name in ("contents", "image-signature", "provenance", "sbom")),
        *([name, "yes"] for name in ("manifest", "vermagic", "crc", "versions")),
        *([name, "–"] for name in ("signature", "boot")),
    ]


def test_an_image_for_another_kernel(lab):
    assert lab.failed(lab.image, "--kernel", "6.1.0-56-amd64") == {"provenance"}


def test_a_changed_layer(lab):
    layer = lab.blob(lab.manifest()["layers"][0]["digest"])
    layer.write_bytes(layer.read_bytes().replace(b"nonce", b"nunce"))
    assert lab.failed(lab.image) == {"contents"}


def test_a_layer_that_is_gone(lab):
    lab.registry.forget(lab.name.partition("/")[2], lab.manifest()["layers"][0]["digest"])
    assert lab.failed(lab.image) == {"contents"}


def test_a_changed_manifest(lab):
    path = lab.blob(lab.image.partition("@")[2])
    path.write_bytes(path.read_bytes() + b"\n")
    assert lab.failed(lab.image) == {"contents"}


def test_a_changed_configuration(lab):
    path = lab.blob(lab.manifest()["config"]["digest"])
    path.write_bytes(path.read_bytes().replace(b"nvidia-open", b"nvidia-opeN"))
    assert lab.failed(lab.image) == {"contents"}


def test_a_moved_tag(lab):
    lab.push({**lab.files, "evil": b"x"}, tag="1")
    assert lab.failed(lab.image.replace("@", ":1@")) == {"contents"}
    assert lab.failed(f"{lab.name}:1") == {"image-signature", "provenance", "sbom"}
    assert lab.failed(lab.image) == set()


def test_a_copy_under_the_same_labels_is_not_signed_and_stays_closed(lab):
    copy = lab.push({**lab.files, "evil": b"x"}, tag="2")
    checks = lab.checks(copy)
    assert {name for name, passed in checks.items() if passed is False} == {"image-signature", "provenance", "sbom"}
    assert {checks[name] for name in INSIDE} == {None}


def test_a_signed_image_whose_inside_is_another(lab):
    """Whoever has the key can sign anything: what is inside is looked at all the same."""
    name = next(name for name in lab.files if name.endswith(".ko"))
    copy = lab.push({**lab.files, name: lab.files[name] + b"x"}, tag="2")
    lab.sign(copy)
    assert lab.failed(copy) == {"manifest"}


def test_the_wrong_key(lab, cosign_program):
    _, other = key_pair(lab.folder / "other", cosign_program)
    assert lab.failed(lab.image, public=other) == {"image-signature", "provenance", "sbom"}


@pytest.mark.parametrize("document", ["provenance", "sbom"])
def test_an_input_removed_from_a_document(lab, document):
    image = lab.push({**lab.files, "other": b"x"}, tag="2")
    whole, less = lab.facts(image), lab.facts(image, inputs=INPUTS[1:])
    made = {"provenance": statements.provenance_statement, "sbom": sbom.sbom_statement}
    said = {name: make(less if name == document else whole) for name, make in made.items()}
    said["provenance"] = said["provenance"].replace(less.key.encode(), whole.key.encode())
    lab.hang(image, said["sbom"], statements.SBOM)
    lab.hang(image, said["provenance"], statements.PROVENANCE)
    lab.hang(image, statements.signature_statement(whole), statements.SIGNATURE)
    assert lab.failed(image) == {document}


def test_an_input_removed_from_the_manifest_inside(lab):
    made = msgspec.json.decode(lab.files["manifest.json"])
    files = {**lab.files, "manifest.json": msgspec.json.encode({**made, "inputs": made["inputs"][1:]})}
    image = lab.push(files, tag="2")
    lab.sign(image)
    assert lab.failed(image) == {"manifest"}


def test_a_registry_that_is_silent_is_neither_absent_nor_wrong(lab):
    ended = lab.verify("127.0.0.1:9/drivers/nv:1", "--insecure-registry", "127.0.0.1:9")
    assert (ended.exit_code, ended.stdout) == (RegistryError.exit_code, "")
    assert "does not answer" in ended.stderr


def test_a_name_that_the_registry_does_not_have(lab):
    assert lab.verify(f"{lab.name}:none").exit_code == 1
    assert lab.failed(f"{lab.name}@sha256:{'0' * 64}") == {"contents"}


def test_a_file_that_is_no_key(lab):
    ended = lab.verify(lab.image, public=lab.signing.path)
    assert (ended.exit_code, "is not a public key" in ended.stderr) == (1, True)
