"""The bill of materials of an image: SPDX 2.3, with the image as the described package, one package per input, and
files.

https://spdx.github.io/spdx-spec/v2.3/
"""

import json
import re
from datetime import UTC, datetime
from typing import Any

from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    File,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.parser.error import SPDXParsingError
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from upgrader.core.driver_build.driver_builds import Input, hash_facts
from upgrader.core.errors import ConfigurationError
from upgrader.images.trust.statements import SBOM, StatementError, image_statement, predicate_of
from upgrader.images.trust.values import ShippedFile, SignedImageFacts

_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-image"
_INPUT = re.compile(r"SPDXRef-input-(?P<kind>[a-z-]+)-(?P<digits>[0-9a-f]{16})")
_SUCH = "Every input needs a kind in lower case, a name, and 64 hex digits; every file needs its two digests."


def sbom_statement(facts: SignedImageFacts) -> bytes:
    """The statement with the document.

    Raises:
        ConfigurationError: the facts give no valid SPDX document; the details contain the validator's messages.
    """
    document = _spdx_document(facts)
    wrong = [message.validation_message for message in validate_full_spdx_document(document)]
    odd = [image_input.name for image_input in facts.inputs if _INPUT.fullmatch(_input_id(image_input)) is None]
    if wrong or odd:
        raise ConfigurationError(
            f"no SBOM can be created for {facts.identity}", details="\n".join([*wrong, *odd]), resolution=_SUCH
        )
    return image_statement(facts, SBOM, _plain_json(DocumentConverter().convert(document)))


def read_sbom(payload: bytes) -> tuple[str, tuple[Input, ...]]:
    """The digits of the described image, and the inputs in the document.

    Raises:
        StatementError: the document is not an SBOM of a driver image.
    """
    try:
        document = JsonLikeDictParser().parse(predicate_of(payload))
    except SPDXParsingError as error:
        raise StatementError(f"it is not an SPDX document: {'; '.join(map(str, error.get_messages()))}") from error
    described = {
        edge.related_spdx_element_id
        for edge in document.relationships
        if edge.relationship_type is RelationshipType.DESCRIBES and edge.spdx_element_id == _DOCUMENT
    }
    images = [package for package in document.packages if package.spdx_id in described]
    if len(images) != 1:
        raise StatementError(f"it describes {len(images)} images")
    return _sha256_digits(images[0]), tuple(
        _read_input(package) for package in document.packages if package.spdx_id.startswith("SPDXRef-input-")
    )


def _spdx_document(facts: SignedImageFacts) -> Document:
    inputs = sorted(facts.inputs)
    files = sorted(facts.files)
    edges = [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _IMAGE)]
    edges += [Relationship(_IMAGE, RelationshipType.GENERATED_FROM, _input_id(image_input)) for image_input in inputs]
    # not CONTAINS, which would claim that every file of the image is listed
    edges += [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _file_id(file)) for file in files]
    return Document(
        creation_info=CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=_DOCUMENT,
            name=str(facts.identity),
            document_namespace=f"https://gpu-upgrader.io/sbom/{facts.sha256}",
            creators=[Actor(ActorType.TOOL, "gpu-upgrader")],
            created=datetime.fromtimestamp(facts.epoch, UTC).replace(tzinfo=None),  # the library's times are UTC
        ),
        packages=[_image_package(facts), *(_input_package(image_input) for image_input in inputs)],
        files=[_spdx_file(file) for file in files],
        relationships=edges,
    )


def _image_package(facts: SignedImageFacts) -> Package:
    return Package(
        spdx_id=_IMAGE,
        name=facts.identity.recipe,
        version=facts.identity.tag,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, facts.sha256)],
        primary_package_purpose=PackagePurpose.CONTAINER,
    )


def _input_package(image_input: Input) -> Package:
    return Package(
        spdx_id=_input_id(image_input),
        name=image_input.name,
        version=image_input.version or None,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, image_input.sha256)],
    )


def _spdx_file(file: ShippedFile) -> File:
    checksums = [Checksum(ChecksumAlgorithm.SHA1, file.sha1), Checksum(ChecksumAlgorithm.SHA256, file.sha256)]
    return File(name=f"./{file.path}", spdx_id=_file_id(file), checksums=checksums)


def _input_id(image_input: Input) -> str:
    """SPDX has no field for an input's kind, so the identifier contains it, and a hash of all fields."""
    facts = [image_input.kind, image_input.name, image_input.version, image_input.sha256]
    return f"SPDXRef-input-{image_input.kind}-{hash_facts(facts, 16)}"


def _file_id(file: ShippedFile) -> str:
    return f"SPDXRef-file-{hash_facts(file.path, 16)}"


def _read_input(package: Package) -> Input:
    match = _INPUT.fullmatch(package.spdx_id)
    kind = match["kind"] if match else ""
    image_input = Input(kind=kind, name=package.name, version=package.version or "", sha256=_sha256_digits(package))
    if _input_id(image_input) != package.spdx_id:
        raise StatementError(f"{package.name} {package.version} differs from its identifier")
    return image_input


def _sha256_digits(package: Package) -> str:
    return next(
        (checksum.value for checksum in package.checksums if checksum.algorithm is ChecksumAlgorithm.SHA256), ""
    )


def _plain_json(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The converter's values through JSON, which converts enumerations and times to text."""
    return json.loads(json.dumps(value))
