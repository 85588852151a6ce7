"""in-toto statements about an image, as the bytes that are signed: the signature's own and SLSA provenance v1.

https://github.com/in-toto/attestation/tree/main/spec/v1
https://slsa.dev/spec/v1.0/provenance
"""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import STATEMENT_TYPE_URI, Statement

from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.images.trust.values import ImageFacts

SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
SBOM = "https://spdx.dev/Document"
BUILD_TYPE = "https://gpu-upgrader.io/driver-image/v1"
"""What externalParameters mean: the fields of an Identity. docs/guides/driver-images/trust.md describes it."""


class Said(Exception):  # noqa: N818 - no error of ours, but what is wrong with a document of somebody else
    """A document does not say what it should; the sentence is for people."""


def signature(facts: ImageFacts) -> bytes:
    """What `cosign sign` signs: that this digest is meant."""
    return statement(facts, SIGNATURE, {})


def provenance(facts: ImageFacts) -> bytes:
    """What the image was made of, for whom and by whom.

    It has no times: who builds the same again gets the same document.
    """
    made = Provenance()
    definition, details = made.build_definition, made.run_details
    definition.build_type = BUILD_TYPE
    definition.external_parameters.update(_parameters(facts.identity))
    definition.resolved_dependencies.extend(_dependency(one) for one in sorted(facts.inputs))
    details.builder.id = facts.builder
    details.metadata.invocation_id = facts.key
    return statement(facts, PROVENANCE, json_format.MessageToDict(made))


def statement(facts: ImageFacts, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """A statement about the image; the same values give the same bytes."""
    subject = ResourceDescriptor(name=facts.identity.recipe, digest={"sha256": facts.sha256}).pb
    made = Statement([subject], predicate_type, dict(predicate))
    made.pb.predicate.SetInParent()  # an empty one is said too: verifiers ask for it
    said = json_format.MessageToDict(made.pb)
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def subject_of(payload: bytes) -> tuple[str, tuple[str, ...]]:
    """The predicate's type and the SHA-256 digits of all subjects.

    Raises:
        Said: it is no statement.
    """
    made = _statement(payload)
    return made.predicate_type, tuple(one.digest.get("sha256", "") for one in made.subject)


def predicate_of(payload: bytes) -> dict[str, Any]:
    """The predicate as values of JSON.

    Raises:
        Said: it is no statement.
    """
    return dict(json_format.MessageToDict(_statement(payload).predicate))


def read_provenance(payload: bytes) -> tuple[Identity, tuple[Input, ...], str]:
    """Identity, inputs and build key as a provenance of ours says them.

    Raises:
        Said: it is none of ours.
    """
    made = Provenance()
    try:
        json_format.ParseDict(predicate_of(payload), made)
        said = json_format.MessageToDict(made.build_definition.external_parameters)
        identity = Identity(**{name: _text(said[name]) for name in Identity.__struct_fields__})
        inputs = tuple(_input(one) for one in made.build_definition.resolved_dependencies)
    except (json_format.ParseError, KeyError, TypeError) as error:
        raise Said(f"it is no provenance of a driver image: {error}") from error
    if made.build_definition.build_type != BUILD_TYPE:
        raise Said(f"its build type is {made.build_definition.build_type!r}")
    return identity, inputs, made.run_details.metadata.invocation_id


def _statement(payload: bytes) -> Any:  # noqa: ANN401 - the library's messages have no types
    made = Statement([], "", {})
    try:
        json_format.Parse(payload, made.pb)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise Said(f"it is no in-toto statement: {error}") from error
    if made.pb.type != STATEMENT_TYPE_URI:
        raise Said(f"it is a statement of another version: {made.pb.type!r}")
    return made.pb


def _parameters(identity: Identity) -> dict[str, str]:
    return {name: getattr(identity, name) for name in Identity.__struct_fields__}


def _dependency(one: Input) -> Any:  # noqa: ANN401 - as _statement
    annotations = {"kind": one.kind, "version": one.version}
    return ResourceDescriptor(name=one.name, digest={"sha256": one.sha256}, annotations=annotations).pb


def _input(one: Any) -> Input:  # noqa: ANN401 - as _statement
    annotations = json_format.MessageToDict(one.annotations)
    return Input(
        kind=_text(annotations["kind"]),
        name=one.name,
        version=_text(annotations["version"]),
        sha256=_text(one.digest.get("sha256")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
