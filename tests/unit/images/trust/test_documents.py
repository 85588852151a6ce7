"""SBOM, provenance and signature as they are signed: whole, the same each time, and read back as what they were."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import assert_golden
from tests.support.trusting import FILES, IDENTITY, INPUTS, facts
from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.core.errors import ConfigurationError
from upgrader.images.trust.sbom import read_sbom, sbom_statement
from upgrader.images.trust.statements import (
    PROVENANCE,
    SBOM,
    SIGNATURE,
    StatementError,
    provenance_statement,
    read_provenance,
    signature_statement,
    subject_of,
)
from upgrader.images.trust.values import ShippedFile

DIGEST = "sha256:" + "d" * 64
GOLDEN = Path(__file__).parent / "golden"
MADE = {"sbom": sbom_statement, "provenance": provenance_statement, "signature": signature_statement}


@pytest.mark.parametrize("name", MADE)
def test_a_document_as_people_see_it(name):
    made = json.loads(MADE[name](facts(DIGEST, epoch=1_700_000_000)))
    assert_golden(GOLDEN / f"{name}.json", json.dumps(made, indent=2) + "\n")


@pytest.mark.parametrize("name", MADE)
def test_the_same_facts_in_another_order_are_the_same_bytes(name):
    again = facts(DIGEST, inputs=tuple(reversed(INPUTS)), files=tuple(reversed(FILES)))
    assert MADE[name](again) == MADE[name](facts(DIGEST))


@pytest.mark.parametrize(("name", "kind"), [("sbom", SBOM), ("provenance", PROVENANCE), ("signature", SIGNATURE)])
def test_a_document_is_about_one_digest(name, kind):
    assert subject_of(MADE[name](facts(DIGEST))) == (kind, ("d" * 64,))


def test_provenance_is_read_back():
    assert read_provenance(provenance_statement(facts(DIGEST))) == (IDENTITY, tuple(sorted(INPUTS)), facts(DIGEST).key)


def test_an_sbom_is_read_back():
    assert read_sbom(sbom_statement(facts(DIGEST))) == ("d" * 64, tuple(sorted(INPUTS)))


# Names come from archives: whatever stands in them, documents hold it and give it back.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
KIND = st.sampled_from(["package", "recipe", "compiler", "base-image", "option"])
INPUT = st.builds(Input, kind=KIND, name=TEXT, version=TEXT | st.just(""), sha256=HEX)
WHO = st.builds(Identity, vendor=TEXT, recipe=TEXT, driver=TEXT, flavour=TEXT | st.just(""), kernel=TEXT, os=TEXT)


@given(st.lists(INPUT, unique=True, max_size=4), WHO)
def test_all_names_survive(inputs, identity):
    said = facts(DIGEST, inputs=tuple(inputs), identity=identity)
    assert read_provenance(provenance_statement(said)) == (identity, tuple(sorted(inputs)), said.key)
    assert read_sbom(sbom_statement(said)) == ("d" * 64, tuple(sorted(inputs)))


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (Input(kind="package", name="a", version="1", sha256="short"),)},
        {"inputs": (Input(kind="Not A Kind", name="a", version="1", sha256="1" * 64),)},
        {"inputs": (INPUTS[0], INPUTS[0])},
        {"files": (ShippedFile(path="a", sha1="", sha256="1" * 64),)},
    ],
    ids=["digest", "kind", "twice", "no SHA-1"],
)
def test_facts_that_make_no_document_are_refused(change):
    with pytest.raises(ConfigurationError, match="no SBOM can be created for nvidia-open 535"):
        sbom_statement(facts(DIGEST, **change))


def edited(payload, edit):
    made = json.loads(payload)
    edit(made)
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda made: made.update(_type="x"), "another statement type"),
        (lambda made: made.update(subjekt=[]), "not an in-toto statement"),
        (lambda made: made["predicate"].update(more=1), "not a provenance of a driver image"),
        (lambda made: made["predicate"]["buildDefinition"].update(buildType="x"), "its build type is 'x'"),
        (lambda made: made["predicate"]["buildDefinition"]["externalParameters"].pop("kernel"), "'kernel'"),
        (lambda made: made["predicate"]["buildDefinition"]["externalParameters"].update(kernel=5), "is not text"),
        (lambda made: made["predicate"]["buildDefinition"]["resolvedDependencies"][0].pop("digest"), "None|''"),
    ],
)
def test_a_provenance_of_another_project_is_rejected_with_a_reason(edit, reason):
    with pytest.raises(StatementError, match=reason):
        read_provenance(edited(provenance_statement(facts(DIGEST)), edit))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda made: made["predicate"].pop("spdxVersion"), "not an SPDX document"),
        (lambda made: made["predicate"].update(relationships=[]), "describes 0 images"),
        (lambda made: made["predicate"]["packages"][1].update(name="x"), "differs from its identifier"),
        (
            lambda made: made["predicate"]["packages"][1]["checksums"][0].update(checksumValue="0" * 64),
            "differs from its identifier",
        ),
        (
            lambda made: made["predicate"]["packages"][1].update(SPDXID="SPDXRef-input-x"),
            "differs from its identifier",
        ),
    ],
    ids=["version", "describes nothing", "name", "digest", "identifier"],
)
def test_an_sbom_of_another_project_is_rejected_with_a_reason(edit, reason):
    with pytest.raises(StatementError, match=reason):
        read_sbom(edited(sbom_statement(facts(DIGEST)), edit))
