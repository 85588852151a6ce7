"""Signing and verifying with a real cosign and a real registry: what holds, and every way in which it does not."""

import base64
import hashlib
import json
import uuid

import pytest

from tests.support.trusting import IDENTITY, INPUTS, driver_layout, facts, key_pair
from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.core.errors import ConfigurationError, ProcessError, RegistryError
from upgrader.images.registry.attachments import list_attachments
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import CHECKS, Cosign, Verifier, evidence, public_key, publish_signatures, sbom, statements
from upgrader.images.trust.values import PublicKey, SigningKey
from upgrader.process import run

pytestmark = pytest.mark.images

KEY = facts("").key
HOLDS = f"all inputs of build key {KEY[:16]} are named, for {IDENTITY}"
GOOD = (
    Verdict(check=CheckName.CONTENTS, passed=True, reason="the image matches its digest"),
    Verdict(check=CheckName.IMAGE_SIGNATURE, passed=True, reason="signed with the key"),
    Verdict(check=CheckName.PROVENANCE, passed=True, reason=HOLDS),
    Verdict(check=CheckName.SBOM, passed=True, reason=HOLDS),
)


@pytest.fixture
async def registry(registry_on_loopback):
    async with RegistryClient(insecure=(registry_on_loopback.host,)) as client:
        yield client


@pytest.fixture
def repository(registry_on_loopback):
    return f"{registry_on_loopback.host}/drivers/t{uuid.uuid4().hex}"


@pytest.fixture
async def pushed(registry, repository, tmp_path):
    """An image that nobody has signed: name@sha256:... Its layer is its own: a registry keeps equal ones once."""
    return await registry.push(driver_layout(tmp_path / "image", layer=repository.encode()), f"{repository}:1")


@pytest.fixture
async def signed(registry, pushed, signing, cosign):
    await publish_signatures(pushed, about(pushed), key=signing, cosign=cosign, registry=registry)
    return pushed


@pytest.fixture
def verdicts(registry, verifying, cosign):
    async def ask(image, expected=IDENTITY, **more):
        layers = more.pop("layers", False)
        verifier = Verifier(**{"key": verifying, "cosign": cosign, "registry": registry, **more})
        return await verifier.verify(image, expected, layers=layers)

    return ask


def about(image, **changes):
    return facts(image.partition("@")[2], **changes)


def failed(verdicts):
    return {one.check: one.reason for one in verdicts if one.passed is False}


async def hang(registry, image, statement, kind, *, signing, cosign):
    """Sign a statement of our own making and hang it on the image."""
    await evidence.attach_bundle(registry, image, await cosign.sign(statement, kind, signing))


async def test_what_was_signed_verifies(signed, verdicts):
    assert await verdicts(signed) == GOOD
    assert await verdicts(signed, layers=True) == GOOD
    assert tuple(one.check for one in GOOD) == CHECKS


async def test_the_tag_may_be_named_too(signed, repository, verdicts):
    digest = signed.partition("@")[2]
    assert await verdicts(f"{repository}:1@{digest}") == GOOD


@pytest.mark.gate
async def test_cosign_itself_verifies_what_we_hang_there(signed, keys, cosign_program):
    given = ["--key", keys[1], "--insecure-ignore-tlog=true"]
    said = json.loads(run([cosign_program, "verify", *given, signed], timeout=60).text)
    assert {one["critical"]["image"]["docker-manifest-digest"] for one in said} == {signed.partition("@")[2]}
    for kind in ("spdxjson", "slsaprovenance1"):
        run([cosign_program, "verify-attestation", *given, "--type", kind, signed], timeout=60)


async def test_signed_twice_verifies_and_lists_both(signed, registry, signing, cosign, verdicts):
    before = await list_attachments(registry, signed)
    await publish_signatures(signed, about(signed), key=signing, cosign=cosign, registry=registry)
    assert await verdicts(signed) == GOOD
    assert len(await list_attachments(registry, signed)) == 2 * len(before) == 6


async def test_a_bundle_that_hangs_there_already_is_not_listed_twice(pushed, registry, signing, cosign):
    bundle = await cosign.sign(statements.signature_statement(about(pushed)), statements.SIGNATURE, signing)
    first = await evidence.attach_bundle(registry, pushed, bundle)
    assert await evidence.attach_bundle(registry, pushed, bundle) == first
    assert await list_attachments(registry, pushed) == (first,)


async def test_another_image_is_not_signed_by_mistake(pushed, registry, signing, cosign):
    with pytest.raises(ConfigurationError, match="is not the image that was built"):
        await publish_signatures(pushed, facts("sha256:" + "0" * 64), key=signing, cosign=cosign, registry=registry)
    assert await list_attachments(registry, pushed) == ()


# Not signed, or not by whom it should be


async def test_no_signature_is_a_failed_verdict(pushed, verdicts):
    assert failed(await verdicts(pushed)) == {
        CheckName.IMAGE_SIGNATURE: "not signed",
        CheckName.PROVENANCE: "it does not exist",
        CheckName.SBOM: "it does not exist",
    }


async def test_the_wrong_key(signed, verdicts, tmp_path, cosign_program, verifying):
    _, other = key_pair(tmp_path / "other", cosign_program)
    reason = f"signed with another key ({verifying.hint})"
    assert failed(await verdicts(signed, key=public_key(other))) == {
        CheckName.IMAGE_SIGNATURE: reason,
        CheckName.PROVENANCE: reason,
        CheckName.SBOM: reason,
    }


async def test_documents_alone_are_no_signature(pushed, registry, signing, cosign, verdicts):
    """`cosign verify` of version 3 takes any signed statement for the signature of the image."""
    await hang(registry, pushed, sbom.sbom_statement(about(pushed)), statements.SBOM, signing=signing, cosign=cosign)
    assert failed(await verdicts(pushed)) == {
        CheckName.IMAGE_SIGNATURE: "not signed",
        CheckName.PROVENANCE: "it does not exist",
    }


async def test_signatures_of_another_image_count_for_nothing(signed, registry, repository, tmp_path, verdicts):
    other = await registry.push(driver_layout(tmp_path / "other", layer=b"evil"), f"{repository}:2")
    for one in await evidence.find_bundles(registry, signed):
        await evidence.attach_bundle(registry, other, one.bundle)
    wrong = "its signature is wrong: provided artifact digest does not match any digest in statement"
    assert failed(await verdicts(other)) == {
        CheckName.IMAGE_SIGNATURE: wrong,
        CheckName.PROVENANCE: wrong,
        CheckName.SBOM: wrong,
    }


async def test_a_statement_changed_after_signing(signed, registry, repository, tmp_path, verdicts, pushed):
    """What was signed for one image, with another digest written into the payload."""
    other = await registry.push(driver_layout(tmp_path / "other", layer=b"evil"), f"{repository}:2")
    for one in await evidence.find_bundles(registry, signed):
        await evidence.attach_bundle(registry, other, forged(one, signed, other))
    mismatch = "could not verify envelope: accepted signatures do not match threshold, Found: 0, Expected 1"
    assert failed(await verdicts(other)) == dict.fromkeys(CHECKS[1:], f"its signature is wrong: {mismatch}")


def forged(found, one_image, another):
    digits = [image.partition("sha256:")[2].encode() for image in (one_image, another)]
    made = json.loads(found.bundle.data)
    made["dsseEnvelope"]["payload"] = base64.b64encode(found.payload.replace(*digits)).decode()
    return type(found.bundle)(data=json.dumps(made).encode(), predicate_type=found.bundle.predicate_type)


def _changed(change):
    def make(data):
        made = json.loads(data)
        change(made, made["dsseEnvelope"], made["verificationMaterial"])
        return json.dumps(made).encode()

    return make


FOREIGN = {
    "a field of another version": _changed(lambda whole, _envelope, _by: whole.update(more=1)),
    "an entry of a log": _changed(lambda _whole, _envelope, by: by.update(tlogEntries=["x"])),
    "a certificate": _changed(lambda _whole, _envelope, by: by.update(certificate={"rawBytes": "AAAA"})),
    "a certificate alone": _changed(
        lambda _whole, _envelope, by: by.update(certificate={"rawBytes": "AAAA"}) or by.pop("publicKey")
    ),
    "no base64": _changed(lambda _whole, envelope, _by: envelope["signatures"][0].update(sig="!")),
    "no signature": _changed(lambda _whole, envelope, _by: envelope.update(signatures=[])),
    "a signature of nothing": _changed(lambda _whole, envelope, _by: envelope["signatures"][0].update(sig="AAAA")),
    "no text": _changed(lambda _whole, envelope, _by: envelope.update(payload="gICA")),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
async def test_something_foreign_or_broken_beside_it_does_not_keep_a_signed_image_from_being_verified(
    signed, registry, verdicts, foreign
):
    for one in await evidence.find_bundles(registry, signed):
        made = evidence.Bundle(data=foreign(one.bundle.data), predicate_type=one.bundle.predicate_type)
        await evidence.attach_bundle(registry, signed, made)
    assert len(await list_attachments(registry, signed)) == 6
    assert await verdicts(signed) == GOOD


@pytest.mark.parametrize("data", [b"", b"no JSON", b"{}", b'{"mediaType": "x", "dsseEnvelope": 5}'])
async def test_what_is_no_bundle_is_somebody_elses(signed, registry, verdicts, data):
    bundle = evidence.Bundle(data=data, predicate_type=statements.SIGNATURE)
    await evidence.attach_bundle(registry, signed, bundle)
    assert await verdicts(signed) == GOOD


# Tampered with


async def test_a_changed_layer(signed, registry_on_loopback, registry, verdicts):
    manifest = json.loads((await registry.get_manifest(signed)).data)
    layer = manifest["layers"][0]["digest"]
    file = registry_on_loopback.blob(layer)
    data = bytearray(file.read_bytes())
    data[7] ^= 1
    file.write_bytes(data)
    got = "sha256:" + hashlib.sha256(data).hexdigest()
    reason = f"{signed}: expected {layer}, received {got}"
    assert failed(await verdicts(signed, layers=True)) == {CheckName.CONTENTS: reason}
    assert await verdicts(signed) == GOOD  # layers are then left to whoever pulls


async def test_a_layer_that_is_gone(signed, registry_on_loopback, registry, repository, verdicts):
    layer = json.loads((await registry.get_manifest(signed)).data)["layers"][0]["digest"]
    registry_on_loopback.forget(repository.partition("/")[2], layer)
    (reason,) = failed(await verdicts(signed, layers=True)).values()
    assert reason.endswith(f"expected {layer}, received nothing: the registry no longer has it")


async def test_a_changed_manifest(signed, registry_on_loopback, verdicts):
    file = registry_on_loopback.blob(signed.partition("@")[2])
    file.write_bytes(file.read_bytes() + b"\n")
    found = await verdicts(signed)
    assert [(one.check, one.passed) for one in found] == [(CHECKS[0], False), *((check, None) for check in CHECKS[1:])]


async def test_a_changed_configuration(signed, registry_on_loopback, registry, verdicts):
    config = json.loads((await registry.get_manifest(signed)).data)["config"]
    file = registry_on_loopback.blob(config["digest"])
    file.write_bytes(file.read_bytes().replace(KEY.encode(), b"0" * 64))
    assert list(failed(await verdicts(signed))) == [CheckName.CONTENTS]


@pytest.mark.gate
async def test_a_moved_tag(signed, registry, repository, tmp_path, verdicts):
    other = await registry.push(driver_layout(tmp_path / "other", layer=b"evil"), f"{repository}:1")
    digest = signed.partition("@")[2]
    assert failed(await verdicts(f"{repository}:1@{digest}")) == {CheckName.CONTENTS: f"the tag 1 refers to {other}"}
    assert await verdicts(signed) == GOOD


async def test_an_image_built_again_from_other_inputs_under_the_same_label(
    signed, registry, repository, tmp_path, verdicts, signing, cosign
):
    layout = driver_layout(tmp_path / "other", label="f" * 64)
    other = await registry.push(layout, f"{repository}:2")
    await publish_signatures(other, about(other), key=signing, cosign=cosign, registry=registry)
    found = failed(await verdicts(other))
    assert found == {
        CheckName.PROVENANCE: f"it is of build key {KEY}",
        CheckName.SBOM: "its inputs do not give the image's build key",
    }


async def test_an_image_without_a_build_key(registry, repository, tmp_path, verdicts):
    other = await registry.push(driver_layout(tmp_path / "other", label=""), f"{repository}:2")
    assert failed(await verdicts(other)) == {CheckName.CONTENTS: "it has no label gpu-upgrader.io/build-key"}


async def test_a_damaged_signature_blob(signed, registry_on_loopback, registry, verdicts):
    first = (await list_attachments(registry, signed))[0]
    layer = json.loads((await registry.get_manifest(f"{signed.partition('@')[0]}@{first.digest}")).data)["layers"][0]
    registry_on_loopback.blob(layer["digest"]).write_bytes(b"{}")
    (wrong,) = failed(await verdicts(signed))
    assert wrong in CHECKS[1:]  # the document that it was of: as if it did not hang there


async def test_no_such_image(repository, verdicts):
    absent = f"{repository}@sha256:{'0' * 64}"
    assert failed(await verdicts(absent)) == {CheckName.CONTENTS: "the registry has no image of this digest"}


# Inputs


@pytest.mark.parametrize("removed", INPUTS, ids=lambda one: f"{one.kind} {one.name}")
@pytest.mark.parametrize("document", ["provenance", "sbom"])
async def test_an_input_that_a_document_leaves_out_is_named(
    pushed, registry, signing, cosign, verdicts, removed, document
):
    whole = about(pushed)
    less = about(pushed, inputs=tuple(one for one in INPUTS if one != removed))
    made = {"provenance": statements.provenance_statement(whole), "sbom": sbom.sbom_statement(whole)}
    made[document] = {"provenance": statements.provenance_statement, "sbom": sbom.sbom_statement}[document](less)
    if document == "provenance":  # only the list, as whoever wants to hide an input would
        made[document] = made[document].replace(less.key.encode(), whole.key.encode())
    await hang(registry, pushed, made["sbom"], statements.SBOM, signing=signing, cosign=cosign)
    await hang(registry, pushed, made["provenance"], statements.PROVENANCE, signing=signing, cosign=cosign)
    await hang(
        registry, pushed, statements.signature_statement(whole), statements.SIGNATURE, signing=signing, cosign=cosign
    )
    found = failed(await verdicts(pushed))
    check = CheckName(document)
    other = {"provenance": "the SBOM", "sbom": "the provenance"}[document]
    what = " ".join(part for part in (removed.kind, removed.name, removed.version) if part)
    assert found[check] == f"it lacks inputs that {other} has: {what}"
    assert set(found) == {check}


async def test_an_input_that_both_leave_out(pushed, registry, signing, cosign, verdicts):
    await publish_signatures(pushed, about(pushed, inputs=INPUTS[1:]), key=signing, cosign=cosign, registry=registry)
    assert set(failed(await verdicts(pushed))) == {CheckName.PROVENANCE, CheckName.SBOM}


@pytest.mark.parametrize("field", ["driver", "kernel", "flavour", "os", "arch", "vendor", "recipe"])
async def test_an_image_for_another_kernel_or_driver(signed, verdicts, field):
    wanted = type(IDENTITY)(**{**{name: getattr(IDENTITY, name) for name in IDENTITY.__struct_fields__}, field: "x"})
    found = failed(await verdicts(signed, wanted))
    assert found[CheckName.PROVENANCE] == f"it is about {field} {getattr(IDENTITY, field)!r} and not 'x'"


# Doubt is an error


async def test_a_registry_that_is_not_there_is_an_error(verdicts, cosign, verifying):
    async with RegistryClient(insecure=("127.0.0.1:9",)) as gone:
        with pytest.raises(RegistryError, match="does not answer"):
            await verdicts(f"127.0.0.1:9/a@sha256:{'0' * 64}", registry=gone)


async def test_a_cosign_that_fails_is_an_error(signed, verdicts, tmp_path):
    broken = tmp_path / "cosign"
    broken.write_text("#!/bin/sh\necho 'Error: no space left on device' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ProcessError, match="no space left"):
        await verdicts(signed, cosign=Cosign(broken))
    with pytest.raises(ProcessError, match="cannot be started"):
        await verdicts(signed, cosign=Cosign(tmp_path / "nothing"))


async def test_a_key_that_only_looks_like_one(signed, verdicts):
    pem = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    with pytest.raises(ConfigurationError, match="the public key cannot be used"):
        await verdicts(signed, key=PublicKey(pem=pem, hint=""))


async def test_a_tag_alone_is_refused(repository, verdicts):
    with pytest.raises(ConfigurationError, match="has no digest"):
        await verdicts(f"{repository}:1")


async def test_a_wrong_password_is_said_and_never_shown(signing, cosign, pushed):
    wrong = SigningKey(path=signing.path, password="battery staple")  # noqa: S106
    with pytest.raises(ConfigurationError, match="cannot be used") as raised:
        await cosign.sign(statements.signature_statement(about(pushed)), statements.SIGNATURE, wrong)
    assert "decryption failed" in raised.value.details
    assert "battery" not in f"{raised.value} {raised.value.__cause__} {wrong!r}"


async def test_cosign_reaches_for_nothing_but_its_files(signing, cosign_program, pushed, verifying, tmp_path):
    """In a network namespace without any interface it signs and verifies all the same."""
    alone = tmp_path / "cosign"
    alone.write_text(f'#!/bin/sh\nexec unshare --net {cosign_program} "$@"\n')
    alone.chmod(0o755)
    bundle = await Cosign(alone).sign(statements.signature_statement(about(pushed)), statements.SIGNATURE, signing)
    assert await Cosign(alone).find_refusal(bundle, verifying, about(pushed).sha256) is None
