"""What verified documents must say about an image, as pure functions: a sentence of what is wrong, or none."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input, build_key
from upgrader.images.trust.sbom import read_sbom
from upgrader.images.trust.statements import Said, read_provenance, subject_of
from upgrader.images.trust.values import named

ABSENT = "there is none"
_MAY_BE_ANYTHING = ("recipe", "flavour", "os")


class Expected(Struct, frozen=True, kw_only=True):
    """What is known of the image itself: the digits of its digest, the build key on its label, who it is to be.

    Of an image that somebody brought nobody says the recipe, its flavour or the OS: what is empty there may be
    anything, and is what the signed provenance says.
    """

    sha256: str
    label: str
    identity: Identity


class Troubles(Struct, frozen=True, kw_only=True):
    """What is wrong with a provenance and with an SBOM."""

    provenance: str = ""
    sbom: str = ""

    @property
    def count(self) -> int:
        """How many of the two do not hold."""
        return bool(self.provenance) + bool(self.sbom)


def judge(provenances: Sequence[bytes], sboms: Sequence[bytes], expected: Expected) -> Troubles:
    """The best that a provenance and an SBOM out of these say together; all are statements with a verified signature.

    An image that was signed twice has two of each.
    """
    pairs = ((one, other) for one in provenances or (b"",) for other in sboms or (b"",))
    return min((_troubles(one, other, expected) for one, other in pairs), key=lambda troubles: troubles.count)


def _troubles(provenance: bytes, sbom: bytes, expected: Expected) -> Troubles:
    """Each document is held against the image and against the other: what one names, the other has to name."""
    identity, made_of, wrong_provenance = _provenance(provenance, expected)
    listed, wrong_sbom = _sbom(sbom, expected)
    if identity is not None and (other := _differences(identity, expected.identity)):
        wrong_provenance = wrong_provenance or f"it is about {other}"
    whose = msgspec.structs.replace(expected, identity=identity or expected.identity)
    return Troubles(
        provenance=wrong_provenance or _incomplete(made_of, listed, "the SBOM", whose),
        sbom=wrong_sbom or _incomplete(listed, made_of, "the provenance", whose),
    )


def _provenance(payload: bytes, expected: Expected) -> tuple[Identity | None, tuple[Input, ...], str]:
    if not payload:
        return None, (), ABSENT
    try:
        identity, inputs, key = read_provenance(payload)
    except Said as error:
        return None, (), str(error)
    wrong = _other_subject(payload, expected)
    return identity, inputs, wrong or ("" if key == expected.label else f"it is of build key {key or 'none'}")


def _sbom(payload: bytes, expected: Expected) -> tuple[tuple[Input, ...], str]:
    if not payload:
        return (), ABSENT
    try:
        described, inputs = read_sbom(payload)
    except Said as error:
        return (), str(error)
    wrong = "" if described == expected.sha256 else f"it describes sha256:{described}"
    return inputs, _other_subject(payload, expected) or wrong


def _other_subject(payload: bytes, expected: Expected) -> str:
    _, subjects = subject_of(payload)
    return "" if subjects == (expected.sha256,) else f"it is about {_digests(subjects)}"


def _incomplete(inputs: Sequence[Input], others: Sequence[Input], where: str, expected: Expected) -> str:
    """Whether inputs are all those of the build key; what is missing is known by name from the other document."""
    if missing := sorted(set(others) - set(inputs)):
        return f"it leaves out what {where} has: {named(missing)}"
    if build_key(expected.identity, inputs) == expected.label:
        return ""
    if more := sorted(set(inputs) - set(others)):
        return f"its inputs do not give the image's build key; {where} does not have: {named(more)}"
    return "its inputs do not give the image's build key"


def _differences(found: Identity, wanted: Identity) -> str:
    compared = (name for name in found.__struct_fields__ if name not in _MAY_BE_ANYTHING or getattr(wanted, name))
    names = (name for name in compared if getattr(found, name) != getattr(wanted, name))
    return ", ".join(f"{name} {getattr(found, name)!r} and not {getattr(wanted, name)!r}" for name in names)


def _digests(subjects: Iterable[str]) -> str:
    return ", ".join(f"sha256:{one}" for one in subjects) or "nothing"
