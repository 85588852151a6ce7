"""The bill of materials of an image: SPDX 2.3, one package per input, the image as what is described, its modules.

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

from upgrader.core.driver_build.driver_builds import Input, digits
from upgrader.core.errors import ConfigurationError
from upgrader.images.trust.statements import SBOM, Said, predicate_of, statement
from upgrader.images.trust.values import ImageFacts, ShippedFile

_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-image"
_INPUT = re.compile(r"SPDXRef-input-(?P<kind>[a-z-]+)-(?P<digits>[0-9a-f]{16})")
_SUCH = "Every input has a kind of lower-case letters, a name, and 64 hex digits; every file its two digests."


def sbom(facts: ImageFacts) -> bytes:
    """The statement that holds the document.

    Raises:
        ConfigurationError: the facts make no document that SPDX allows, with the validator's words.
    """
    document = _document(facts)
    wrong = [message.validation_message for message in validate_full_spdx_document(document)]
    odd = [one.name for one in facts.inputs if _INPUT.fullmatch(_input_id(one)) is None]
    if wrong or odd:
        raise ConfigurationError(
            f"no SBOM can be written of {facts.identity}", details="\n".join([*wrong, *odd]), resolution=_SUCH
        )
    return statement(facts, SBOM, _plain(DocumentConverter().convert(document)))


def read_sbom(payload: bytes) -> tuple[str, tuple[Input, ...]]:
    """The digits of the image that is described, and the inputs that the document names.

    Raises:
        Said: it is no SBOM of a driver image.
    """
    try:
        document = JsonLikeDictParser().parse(predicate_of(payload))
    except SPDXParsingError as error:
        raise Said(f"it is no SPDX document: {'; '.join(map(str, error.get_messages()))}") from error
    described = {
        one.related_spdx_element_id
        for one in document.relationships
        if one.relationship_type is RelationshipType.DESCRIBES and one.spdx_element_id == _DOCUMENT
    }
    images = [one for one in document.packages if one.spdx_id in described]
    if len(images) != 1:
        raise Said(f"it describes {len(images)} images")
    return _sha256(images[0]), tuple(
        _input(one) for one in document.packages if one.spdx_id.startswith("SPDXRef-input-")
    )


def _document(facts: ImageFacts) -> Document:
    inputs = sorted(facts.inputs)
    files = sorted(facts.files)
    edges = [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _IMAGE)]
    edges += [Relationship(_IMAGE, RelationshipType.GENERATED_FROM, _input_id(one)) for one in inputs]
    # not CONTAINS: that would claim that every file of the image was looked at
    edges += [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _file_id(one)) for one in files]
    return Document(
        creation_info=CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=_DOCUMENT,
            name=str(facts.identity),
            document_namespace=f"https://gpu-upgrader.io/sbom/{facts.sha256}",
            creators=[Actor(ActorType.TOOL, "gpu-upgrader")],
            created=datetime.fromtimestamp(facts.epoch, UTC).replace(tzinfo=None),  # the library's times are UTC
        ),
        packages=[_image(facts), *(_package(one) for one in inputs)],
        files=[_file(one) for one in files],
        relationships=edges,
    )


def _image(facts: ImageFacts) -> Package:
    return Package(
        spdx_id=_IMAGE,
        name=facts.identity.recipe,
        version=facts.identity.tag,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, facts.sha256)],
        primary_package_purpose=PackagePurpose.CONTAINER,
    )


def _package(one: Input) -> Package:
    return Package(
        spdx_id=_input_id(one),
        name=one.name,
        version=one.version or None,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, one.sha256)],
    )


def _file(one: ShippedFile) -> File:
    checksums = [Checksum(ChecksumAlgorithm.SHA1, one.sha1), Checksum(ChecksumAlgorithm.SHA256, one.sha256)]
    return File(name=f"./{one.path}", spdx_id=_file_id(one), checksums=checksums)


def _input_id(one: Input) -> str:
    """SPDX has no field for an input's kind, so the identifier says it, and covers all the rest."""
    return f"SPDXRef-input-{one.kind}-{digits([one.kind, one.name, one.version, one.sha256], 16)}"


def _file_id(one: ShippedFile) -> str:
    return f"SPDXRef-file-{digits(one.path, 16)}"


def _input(package: Package) -> Input:
    found = _INPUT.fullmatch(package.spdx_id)
    kind = found["kind"] if found else ""
    one = Input(kind=kind, name=package.name, version=package.version or "", sha256=_sha256(package))
    if _input_id(one) != package.spdx_id:
        raise Said(f"{package.name} {package.version} is not the package that its identifier says")
    return one


def _sha256(package: Package) -> str:
    return next((one.value for one in package.checksums if one.algorithm is ChecksumAlgorithm.SHA256), "")


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The converter's values through JSON: enumerations and times become texts."""
    return json.loads(json.dumps(value))
