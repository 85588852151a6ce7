"""Compares verified documents with an image: pure functions that return a description of the problem, or none."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input, build_key
from upgrader.images.trust.sbom import read_sbom
from upgrader.images.trust.statements import StatementError, read_provenance, subject_of
from upgrader.images.trust.values import list_inputs

ABSENT = "it does not exist"
_OPTIONAL = ("recipe", "flavour", "os")


class ExpectedFacts(Struct, frozen=True, kw_only=True):
    """The expected facts of an image: the digits of its digest, the build key on its label, and its identity.

    For an image of an external builder, recipe, flavour and OS may be unknown. An empty field matches any value of the
    signed provenance.
    """

    sha256: str
    label: str
    identity: Identity


class Troubles(Struct, frozen=True, kw_only=True):
    """The problems of a provenance and of an SBOM."""

    provenance: str = ""
    sbom: str = ""

    @property
    def count(self) -> int:
        """The number of documents with a problem."""
        return bool(self.provenance) + bool(self.sbom)


def judge_documents(provenances: Sequence[bytes], sboms: Sequence[bytes], expected: ExpectedFacts) -> Troubles:
    """The best result of any provenance with any SBOM. All statements have verified signatures.

    An image that was signed twice has two of each document.
    """
    pairs = ((provenance, other) for provenance in provenances or (b"",) for other in sboms or (b"",))
    return min(
        (_compare_documents(provenance, other, expected) for provenance, other in pairs),
        key=lambda troubles: troubles.count,
    )


def _compare_documents(provenance: bytes, sbom: bytes, expected: ExpectedFacts) -> Troubles:
    """Compare each document with the image and with the other document: both must list the same inputs."""
    identity, made_of, wrong_provenance = _check_provenance(provenance, expected)
    listed, wrong_sbom = _check_sbom(sbom, expected)
    if identity is not None and (other := _identity_differences(identity, expected.identity)):
        wrong_provenance = wrong_provenance or f"it is about {other}"
    whose = msgspec.structs.replace(expected, identity=identity or expected.identity)
    return Troubles(
        provenance=wrong_provenance or _missing_inputs(made_of, listed, "the SBOM", whose),
        sbom=wrong_sbom or _missing_inputs(listed, made_of, "the provenance", whose),
    )


def _check_provenance(payload: bytes, expected: ExpectedFacts) -> tuple[Identity | None, tuple[Input, ...], str]:
    if not payload:
        return None, (), ABSENT
    try:
        identity, inputs, key = read_provenance(payload)
    except StatementError as error:
        return None, (), str(error)
    wrong = _other_subject(payload, expected)
    return identity, inputs, wrong or ("" if key == expected.label else f"it is of build key {key or 'none'}")


def _check_sbom(payload: bytes, expected: ExpectedFacts) -> tuple[tuple[Input, ...], str]:
    if not payload:
        return (), ABSENT
    try:
        described, inputs = read_sbom(payload)
    except StatementError as error:
        return (), str(error)
    wrong = "" if described == expected.sha256 else f"it describes sha256:{described}"
    return inputs, _other_subject(payload, expected) or wrong


def _other_subject(payload: bytes, expected: ExpectedFacts) -> str:
    _, subjects = subject_of(payload)
    return "" if subjects == (expected.sha256,) else f"it is about {_format_digests(subjects)}"


def _missing_inputs(inputs: Sequence[Input], others: Sequence[Input], where: str, expected: ExpectedFacts) -> str:
    """The inputs that are missing for the build key; their names are known from the other document."""
    if missing := sorted(set(others) - set(inputs)):
        return f"it lacks inputs that {where} has: {list_inputs(missing)}"
    if build_key(expected.identity, inputs) == expected.label:
        return ""
    if more := sorted(set(inputs) - set(others)):
        return f"its inputs do not give the image's build key; {where} does not have: {list_inputs(more)}"
    return "its inputs do not give the image's build key"


def _identity_differences(actual: Identity, wanted: Identity) -> str:
    compared = (name for name in actual.__struct_fields__ if name not in _OPTIONAL or getattr(wanted, name))
    names = (name for name in compared if getattr(actual, name) != getattr(wanted, name))
    return ", ".join(f"{name} {getattr(actual, name)!r} and not {getattr(wanted, name)!r}" for name in names)


def _format_digests(subjects: Iterable[str]) -> str:
    return ", ".join(f"sha256:{digest}" for digest in subjects) or "nothing"
