"""What is read of a bundle, and what is none; with a real cosign: tests/images/test_trust.py."""

import base64
import json

import pytest

from tests.support.image_registry import ImageRegistry, serving
from tests.support.trusting import driver_layout, facts
from upgrader.images.layout import MANIFEST
from upgrader.images.registry import attachments
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import evidence, statements

PAYLOAD = statements.signature_statement(facts("sha256:" + "d" * 64))


def text(data):
    return base64.b64encode(data).decode()


def bundle(payload=PAYLOAD, *, sig="AAAA", **more):
    made = {
        "mediaType": evidence.MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": "h"}},
        "dsseEnvelope": {
            "payload": text(payload),
            "payloadType": evidence.PAYLOAD_TYPE,
            "signatures": [{"sig": sig}],
        },
    }
    return json.dumps({**made, **more}).encode()


def test_what_is_not_known_is_left_out_of_what_cosign_gets():
    plain = evidence.parse_bundle(bundle())
    assert (plain.payload, plain.hint, plain.bundle.predicate_type) == (PAYLOAD, "h", statements.SIGNATURE)
    assert json.loads(plain.bundle.data) == json.loads(bundle())
    assert evidence.parse_bundle(bundle(extra={"a": 1})) == plain
    both = {"publicKey": {"hint": "h"}, "certificate": {"rawBytes": "AAAA"}, "tlogEntries": ["x"]}
    assert evidence.parse_bundle(bundle(verificationMaterial=both)) == plain


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        bundle(b"\x80\x80"),
        bundle(b"[" * 100_000),
        bundle(b'{"predicate":' + b'{"a":' * 100_000),
        bundle()[:-1] + b',"a":' + b"[" * 100_000,
        bundle(sig="!"),
        bundle(sig=5),
        bundle(verificationMaterial={"certificate": {"rawBytes": "AAAA"}}),
        bundle(mediaType="application/x"),
    ],
    ids=[
        "no text",
        "payload no text",
        "deep",
        "deep statement",
        "deep beside",
        "no base64",
        "5",
        "certificate",
        "type",
    ],
)
def test_what_is_no_bundle_of_a_key_is_none(data):
    assert evidence.parse_bundle(data) is None


async def test_what_cannot_be_brought_does_not_hide_the_rest(tmp_path):
    async with serving(ImageRegistry(referrers=True)) as registry, RegistryClient(insecure=(registry.host,)) as client:
        image = await client.push(driver_layout(tmp_path / "image"), f"{registry.host}/drivers/a:1")
        huge = await attachments.attach_blob(client, image, bundle(sig="CCCC"), evidence.MEDIA_TYPE, {})
        made = json.loads(registry.manifests["drivers/a", huge.digest])
        made["layers"][0]["size"] = attachments.LIMIT + 1
        await client.put_manifest(json.dumps(made).encode(), MANIFEST, f"{registry.host}/drivers/a:huge")
        for data in (bundle(), bundle(sig="BBBB")):
            await attachments.attach_blob(client, image, data, evidence.MEDIA_TYPE, {})
        changed = next(digest for digest, data in registry.blobs.items() if data == bundle(sig="BBBB"))
        registry.blobs[changed] = b"something else"
        assert len(await attachments.list_attachments(client, image)) == 4
        found = await evidence.find_bundles(client, image)
    wanted = {evidence.parse_bundle(bundle(sig=sig)).bundle.data for sig in ("AAAA", "CCCC")}
    assert {one.bundle.data for one in found} == wanted
