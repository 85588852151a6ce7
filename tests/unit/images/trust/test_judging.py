"""Which of several signed documents together say all that they have to; the sentences: tests/images/test_trust.py."""

import msgspec
import pytest

from tests.support.trusting import IDENTITY, INPUTS, facts
from upgrader.core.driver_build.driver_builds import Input
from upgrader.images.trust.judging import ABSENT, ExpectedFacts, Troubles, judge_documents
from upgrader.images.trust.sbom import sbom_statement
from upgrader.images.trust.statements import provenance_statement

DIGITS = "d" * 64
DIGEST = f"sha256:{DIGITS}"
WHOLE = facts(DIGEST)
EXPECTED = ExpectedFacts(sha256=DIGITS, label=WHOLE.key, identity=IDENTITY)
LESS = facts(DIGEST, inputs=INPUTS[1:])
MORE = facts(DIGEST, inputs=(*INPUTS, Input(kind="option", name="evil", version="1", sha256="e" * 64)))
ELSEWHERE = facts("sha256:" + "e" * 64)


def test_both_whole():
    assert judge_documents([provenance_statement(WHOLE)], [sbom_statement(WHOLE)], EXPECTED) == Troubles()


def test_one_good_pair_among_others_is_enough():
    said = judge_documents(
        [provenance_statement(LESS), provenance_statement(WHOLE), provenance_statement(ELSEWHERE)],
        [sbom_statement(MORE), sbom_statement(WHOLE), b"x"],
        EXPECTED,
    )
    assert said == Troubles()


def test_none_of_either():
    assert judge_documents([], [], EXPECTED) == Troubles(provenance=ABSENT, sbom=ABSENT)


def test_one_without_the_other():
    assert judge_documents([provenance_statement(WHOLE)], [], EXPECTED) == Troubles(sbom=ABSENT)
    assert judge_documents([], [sbom_statement(WHOLE)], EXPECTED) == Troubles(provenance=ABSENT)


def test_an_input_too_many_is_named_by_the_document_without_it():
    said = judge_documents([provenance_statement(WHOLE)], [sbom_statement(MORE)], EXPECTED)
    assert said == Troubles(
        provenance="it lacks inputs that the SBOM has: option evil 1",
        sbom="its inputs do not give the image's build key; the provenance does not have: option evil 1",
    )


def test_an_input_of_another_digest_is_another_input():
    swapped = facts(DIGEST, inputs=(*INPUTS[:-1], Input(kind="option", name="strip", version="-g", sha256="0" * 64)))
    said = judge_documents([provenance_statement(WHOLE)], [sbom_statement(swapped)], EXPECTED)
    assert said.sbom == "it lacks inputs that the provenance has: option strip -g"


def test_documents_about_another_image():
    said = judge_documents([provenance_statement(ELSEWHERE)], [sbom_statement(ELSEWHERE)], EXPECTED)
    about = f"it is about sha256:{'e' * 64}"
    assert said == Troubles(provenance=about, sbom=about)


@pytest.mark.parametrize("count", [0, 2])
def test_a_statement_about_none_or_several(count):
    payload = sbom_statement(WHOLE).replace(
        b'"subject":[', b'"subject":[' + b'{"name":"x","digest":{"sha256":"ab"}},' * count
    )
    said = judge_documents([provenance_statement(WHOLE)], [payload], EXPECTED)
    assert said.sbom == ("" if count == 0 else f"it is about sha256:ab, sha256:ab, {DIGEST}")


BROUGHT = msgspec.structs.replace(EXPECTED, identity=msgspec.structs.replace(IDENTITY, recipe="", flavour="", os=""))


def test_an_image_that_somebody_brought_is_of_the_recipe_that_its_provenance_says():
    assert judge_documents([provenance_statement(WHOLE)], [sbom_statement(WHOLE)], BROUGHT) == Troubles()


@pytest.mark.parametrize("name", ["vendor", "driver", "kernel", "arch"])
@pytest.mark.parametrize("expected", [EXPECTED, BROUGHT])
@pytest.mark.parametrize("wanted", ["other", ""])
def test_for_whom_an_image_is_always_counts(name, expected, wanted):
    other = msgspec.structs.replace(expected.identity, **{name: wanted})
    said = judge_documents(
        [provenance_statement(WHOLE)], [sbom_statement(WHOLE)], msgspec.structs.replace(expected, identity=other)
    )
    assert said == Troubles(provenance=f"it is about {name} {getattr(IDENTITY, name)!r} and not {wanted!r}")


@pytest.mark.parametrize("name", ["recipe", "flavour", "os"])
def test_what_is_said_of_a_recipe_counts(name):
    other = msgspec.structs.replace(BROUGHT.identity, **{name: "other"})
    said = judge_documents(
        [provenance_statement(WHOLE)], [sbom_statement(WHOLE)], msgspec.structs.replace(BROUGHT, identity=other)
    )
    assert said == Troubles(provenance=f"it is about {name} {getattr(IDENTITY, name)!r} and not 'other'")


def test_the_build_key_of_a_brought_image_is_that_of_its_provenance():
    lied = facts(DIGEST, identity=msgspec.structs.replace(IDENTITY, os="trixie"))
    said = judge_documents([provenance_statement(lied)], [sbom_statement(WHOLE)], BROUGHT)
    assert said.provenance == f"it is of build key {lied.key}"
    assert said.sbom == "its inputs do not give the image's build key"
    mixed = provenance_statement(lied).replace(lied.key.encode(), WHOLE.key.encode())
    assert (
        judge_documents([mixed], [sbom_statement(WHOLE)], BROUGHT).provenance
        == "its inputs do not give the image's build key"
    )
