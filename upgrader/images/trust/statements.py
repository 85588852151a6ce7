"""in-toto statements about an image, as the bytes that are signed: cosign's signature statement and SLSA provenance v1.

https://github.com/in-toto/attestation/tree/main/spec/v1 https://slsa.dev/spec/v1.0/provenance
"""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import STATEMENT_TYPE_URI, Statement

from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.images.trust.values import SignedImageFacts

SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
SBOM = "https://spdx.dev/Document"
BUILD_TYPE = "https://gpu-upgrader.io/driver-image/v1"
"""The meaning of externalParameters: the fields of an Identity. docs/guides/driver-images/trust.md describes it."""


class StatementError(Exception):
    """A document is invalid, or lacks required contents. The text is shown to users."""


def signature_statement(facts: SignedImageFacts) -> bytes:
    """The statement that `cosign sign` signs; it contains the digest only."""
    return image_statement(facts, SIGNATURE, {})


def provenance_statement(facts: SignedImageFacts) -> bytes:
    """The inputs of the image, its identity, and its builder.

    It contains no times, so that the same build gives the same document.
    """
    message = Provenance()
    definition, details = message.build_definition, message.run_details
    definition.build_type = BUILD_TYPE
    definition.external_parameters.update(_identity_parameters(facts.identity))
    definition.resolved_dependencies.extend(_input_descriptor(image_input) for image_input in sorted(facts.inputs))
    details.builder.id = facts.builder
    details.metadata.invocation_id = facts.key
    return image_statement(facts, PROVENANCE, json_format.MessageToDict(message))


def image_statement(facts: SignedImageFacts, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """A statement about the image. The same values give the same bytes."""
    subject = ResourceDescriptor(name=facts.identity.recipe, digest={"sha256": facts.sha256}).pb
    message = Statement([subject], predicate_type, dict(predicate))
    message.pb.predicate.SetInParent()  # verifiers require the field even if it is empty
    document = json_format.MessageToDict(message.pb)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def subject_of(payload: bytes) -> tuple[str, tuple[str, ...]]:
    """The predicate's type and the SHA-256 digits of all subjects.

    Raises:
        StatementError: the payload is not a statement.
    """
    message = _parse_statement(payload)
    return message.predicate_type, tuple(subject.digest.get("sha256", "") for subject in message.subject)


def predicate_of(payload: bytes) -> dict[str, Any]:
    """The predicate as JSON values.

    Raises:
        StatementError: the payload is not a statement.
    """
    return dict(json_format.MessageToDict(_parse_statement(payload).predicate))


def read_provenance(payload: bytes) -> tuple[Identity, tuple[Input, ...], str]:
    """Identity, inputs and build key of a provenance of this project.

    Raises:
        StatementError: the provenance has another form.
    """
    message = Provenance()
    try:
        json_format.ParseDict(predicate_of(payload), message)
        parameters = json_format.MessageToDict(message.build_definition.external_parameters)
        identity = Identity(**{name: _require_text(parameters[name]) for name in Identity.__struct_fields__})
        inputs = tuple(_read_input(resource) for resource in message.build_definition.resolved_dependencies)
    except (json_format.ParseError, KeyError, TypeError) as error:
        raise StatementError(f"it is not a provenance of a driver image: {error}") from error
    if message.build_definition.build_type != BUILD_TYPE:
        raise StatementError(f"its build type is {message.build_definition.build_type!r}")
    return identity, inputs, message.run_details.metadata.invocation_id


def _parse_statement(payload: bytes) -> Any:  # noqa: ANN401 - the library's messages have no types
    message = Statement([], "", {})
    try:
        json_format.Parse(payload, message.pb)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise StatementError(f"it is not an in-toto statement: {error}") from error
    if message.pb.type != STATEMENT_TYPE_URI:
        raise StatementError(f"it has another statement type: {message.pb.type!r}")
    return message.pb


def _identity_parameters(identity: Identity) -> dict[str, str]:
    return {name: getattr(identity, name) for name in Identity.__struct_fields__}


def _input_descriptor(image_input: Input) -> Any:  # noqa: ANN401 - as _parse_statement
    annotations = {"kind": image_input.kind, "version": image_input.version}
    return ResourceDescriptor(name=image_input.name, digest={"sha256": image_input.sha256}, annotations=annotations).pb


def _read_input(resource: Any) -> Input:  # noqa: ANN401 - as _parse_statement
    annotations = json_format.MessageToDict(resource.annotations)
    return Input(
        kind=_require_text(annotations["kind"]),
        name=resource.name,
        version=_require_text(annotations["version"]),
        sha256=_require_text(resource.digest.get("sha256")),
    )


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
