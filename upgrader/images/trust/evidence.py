"""Bundles on an image in a registry: attached as cosign does it, listed, and parsed without verification."""

import base64

import msgspec
from msgspec import Struct

from upgrader.images.registry.attachments import Attachment, attach_blob, list_attachments, read_attachment
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.transport import ChangedContentsError
from upgrader.images.trust.statements import StatementError, subject_of
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
    """A Sigstore bundle with a DSSE envelope that was signed by a key, not by a certificate."""

    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


class FoundBundle(Struct, frozen=True, kw_only=True):
    """An unverified bundle from a registry. `payload` is the statement's bytes."""

    bundle: Bundle
    payload: bytes
    hint: str
    """The signer that the bundle claims, as in PublicKey.hint."""


async def attach_bundle(registry: RegistryClient, image: str, bundle: Bundle) -> Attachment:
    """Attach a bundle to `name@sha256:...`, so that `cosign verify` and `cosign verify-attestation` find it.

    Raises:
        RegistryError: the registry rejects it.
    """
    annotations = {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": bundle.predicate_type,
    }
    return await attach_blob(registry, image, bundle.data, MEDIA_TYPE, annotations)


async def find_bundles(registry: RegistryClient, image: str) -> tuple[FoundBundle, ...]:
    """All readable bundles of an image. Other attachments are ignored.

    Raises:
        RegistryError: the registry does not list the attachments, or does not return one.
    """
    bundles: list[FoundBundle] = []
    for attachment in await list_attachments(registry, image):
        # the list may omit the type, and annotations are unreliable: only the bundle itself counts
        if attachment.artifact_type not in {MEDIA_TYPE, ""}:
            continue
        try:
            data = await read_attachment(registry, image, attachment)
        except ChangedContentsError:  # anyone with push access can attach damaged data
            continue
        bundle = None if data is None else parse_bundle(data)
        if bundle is not None:
            bundles.append(bundle)
    return tuple(bundles)


def parse_bundle(data: bytes) -> FoundBundle | None:
    """Parse a bundle; None if it is not a bundle signed by a key.

    It is re-encoded from the known fields. All others (certificates, log entries, fields of other versions) have no
    effect, and could only prevent cosign from reading the rest.
    """
    try:
        decoded = msgspec.json.decode(data, type=_Bundle)
        payload = base64.b64decode(decoded.dsse_envelope.payload, validate=True)
        for signature in decoded.dsse_envelope.signatures:
            base64.b64decode(signature.sig, validate=True)
        predicate_type, _ = subject_of(payload)
    except (ValueError, RecursionError, StatementError):  # ValueError includes errors of msgspec, binascii and UTF-8
        return None
    if decoded.media_type != MEDIA_TYPE or decoded.dsse_envelope.payload_type != PAYLOAD_TYPE:
        return None
    bundle = Bundle(data=msgspec.json.encode(decoded), predicate_type=predicate_type)
    return FoundBundle(bundle=bundle, payload=payload, hint=decoded.verification_material.public_key.hint)
