"""Judgements about a cluster."""

from datetime import timedelta

import pytest

from upgrader.core.doctor import checkup
from upgrader.core.doctor.advice import Severity
from upgrader.core.doctor.checkup import LeaseFacts
from upgrader_dev.simulated.cluster.ports import START

OK, W, P = Severity.OK, Severity.WARNING, Severity.PROBLEM


def at(seconds):
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("version", "unsteered", "severity", "said"),
    [
        ("v1.36.3", [], OK, "v1.36.3, has all features"),
        ("v1.35.1", ["Job"], W, "v1.35.1: a restarted gang of Job cannot be steered to upgraded nodes."),
        ("unknown", ["Job"], W, "its version 'unknown' cannot be read"),
    ],
)
def test_the_version_says_what_it_lacks(version, unsteered, severity, said):
    found = checkup.check_version(version, unsteered)
    assert (found.severity, found.message) == (severity, said)


@pytest.mark.parametrize(
    ("server", "before", "after", "severity", "said"),
    [
        (0, 0, 0.2, OK, "agree"),
        (0, 0.9, 1.1, OK, "agree"),
        (0, -30, 30, OK, "agree"),  # a slow answer proves nothing
        (100, 0, 0.2, W, "this machine is 100 s behind the API server"),
        (-100, 0, 0.2, W, "this machine is 99 s ahead of the API server"),
    ],
)
def test_clocks(server, before, after, severity, said):
    found = checkup.check_clock(at(server), at(before), at(after))
    assert (found.severity, said in found.message) == (severity, True), found


@pytest.mark.parametrize(
    ("lease", "severity", "said"),
    [
        (None, P, "no controller has ever held the Lease in namespace upgrader"),
        (LeaseFacts(holder="a", renewed_at=at(-29), seconds=30), OK, "a leads"),
        (LeaseFacts(holder="a", renewed_at=at(-31), seconds=30), P, "the last leader was a, 31 s ago"),
        (LeaseFacts(holder="", renewed_at=at(-1), seconds=30), P, "the last leader has ended"),
    ],
)
def test_whether_a_controller_leads(lease, severity, said):
    found = checkup.check_controller(lease, START, "upgrader")
    assert (found.severity, said in found.message) == (severity, True)


SPEC = {"group": "g", "versions": [{"name": "v1", "schema": {"properties": {"a": {"type": "string"}}}}]}


def changed(**version):
    return {"group": "g", "versions": [{"name": "v1", **version}]}


@pytest.mark.parametrize(
    ("there", "path"),
    [
        (SPEC, None),
        (SPEC | {"conversion": {"strategy": "None"}}, None),
        (changed(schema={"properties": {"a": {"type": "string", "x": 1}}}), None),
        (changed(schema={"properties": {"a": {"type": "integer"}}}), "spec.versions[0].schema.properties.a.type"),
        (changed(schema={"properties": {}}), "spec.versions[0].schema.properties.a"),
        (changed(schema={"properties": {"a": {"type": "string"}, "b": {}}}), "spec.versions[0].schema.properties.b"),
        ({"group": "g", "versions": []}, "spec.versions"),
        ({"group": "other"} | {"versions": SPEC["versions"]}, "spec.group"),
    ],
)
def test_what_differs_in_a_definition(there, path):
    assert checkup.first_difference(SPEC, there) == path
    found = checkup.check_definition("x.g", SPEC, there)
    assert (found.severity, found.fix) == ((OK, "") if path is None else (P, "Run `upgrader crds --install`."))


def test_a_definition_that_is_not_installed():
    assert checkup.check_definition("x.g", SPEC, None).severity is P
