"""Bundles on an image in a registry: hung there as cosign does it, found there, and what each says unverified."""

import base64

import msgspec
from msgspec import Struct

from upgrader.images.attachments import Attachment, attach, attachments, read
from upgrader.images.registry import RegistryClient
from upgrader.images.registry_http import ChangedContentsError
from upgrader.images.trust.statements import Said, subject_of
from upgrader.images.trust.values import Bundle

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


class _PublicKey(Struct, frozen=True, kw_only=True):
    hint: str = ""


class _Material(Struct, frozen=True, kw_only=True, rename="camel"):
    public_key: _PublicKey


class _Signature(Struct, frozen=True, kw_only=True):
    sig: str


class _Envelope(Struct, frozen=True, kw_only=True, rename="camel"):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...] = ()


class _Bundle(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Sigstore bundle with a DSSE envelope that a key signed, not a certificate."""

    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


class Found(Struct, frozen=True, kw_only=True):
    """A bundle as it was found; nothing of it is verified. `payload` is the statement's bytes."""

    bundle: Bundle
    payload: bytes
    hint: str
    """Whose signature it says it is, as PublicKey.hint."""


async def put(registry: RegistryClient, image: str, bundle: Bundle) -> Attachment:
    """Hang a bundle on `name@sha256:...`, so that `cosign verify` and `cosign verify-attestation` find it.

    Raises:
        RegistryError: the registry does not take it.
    """
    annotations = {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": bundle.predicate_type,
    }
    return await attach(registry, image, bundle.data, MEDIA_TYPE, annotations)


async def look(registry: RegistryClient, image: str) -> tuple[Found, ...]:
    """All bundles on an image that can be read as such; what else hangs there is somebody else's.

    Raises:
        RegistryError: the registry does not say what hangs there, or does not give it.
    """
    found: list[Found] = []
    for attachment in await attachments(registry, image):
        # the list may leave the type out, the annotations may say anything: the bundle itself counts
        if attachment.artifact_type not in {MEDIA_TYPE, ""}:
            continue
        try:
            data = await read(registry, image, attachment)
        except ChangedContentsError:  # whoever may push can hang broken things there, and signs nothing by it
            continue
        one = None if data is None else parse_bundle(data)
        if one is not None:
            found.append(one)
    return tuple(found)


def parse_bundle(data: bytes) -> Found | None:
    """A bundle; None where it is none that a key has signed.

    It is written anew from what is known here: whatever else it holds (certificates, entries of logs, other versions'
    fields) counts for nothing, and could only keep cosign from reading the rest.
    """
    try:
        made = msgspec.json.decode(data, type=_Bundle)
        payload = base64.b64decode(made.dsse_envelope.payload, validate=True)
        for one in made.dsse_envelope.signatures:
            base64.b64decode(one.sig, validate=True)
        predicate_type, _ = subject_of(payload)
    except (ValueError, RecursionError, Said):  # of msgspec, binascii and UTF-8 too
        return None
    if made.media_type != MEDIA_TYPE or made.dsse_envelope.payload_type != PAYLOAD_TYPE:
        return None
    bundle = Bundle(data=msgspec.json.encode(made), predicate_type=predicate_type)
    return Found(bundle=bundle, payload=payload, hint=made.verification_material.public_key.hint)
