import pytest

from upgrader.api import names
from upgrader.core import steering
from upgrader.core.steering import Placement, Record, record_of, resume_patch

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OURS = {"key": "gpu-upgrader.io/revision", "operator": "NotIn", "values": ["old"]}
TOLERATION = {"key": "gpu-upgrader.io/maintenance", "operator": "Equal", "value": "c-1", "effect": "NoSchedule"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def affinity(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


CASES = {
    "a template without any wish gets one term and one toleration": (
        {},
        {"affinity": affinity({"matchExpressions": [OURS]}), "tolerations": [TOLERATION]},
    ),
    "terms are ORed, so each of them gets ours": (
        {"affinity": affinity({"matchExpressions": [ZONE]}, {"matchFields": [ZONE]}), "tolerations": [TOLERATION]},
        {"affinity": affinity({"matchExpressions": [ZONE, OURS]}, {"matchFields": [ZONE], "matchExpressions": [OURS]})},
    ),
    "an empty term matches no node and must not begin to": (
        {"affinity": affinity({}, {"matchExpressions": [ZONE]}), "tolerations": [TOLERATION]},
        {"affinity": affinity({}, {"matchExpressions": [ZONE, OURS]})},
    ),
    "what an earlier restart left is replaced": (
        {
            "affinity": affinity({"matchExpressions": [ZONE, {**OURS, "values": ["older"]}]}),
            "tolerations": [{"key": "spot", "operator": "Exists"}, {**TOLERATION, "value": "c-0"}],
        },
        {
            "affinity": affinity({"matchExpressions": [ZONE, OURS]}),
            "tolerations": [{"key": "spot", "operator": "Exists"}, TOLERATION],
        },
    ),
    "a user who asks for a revision by our label keeps the wish": (
        {"affinity": affinity({"matchExpressions": [{**OURS, "operator": "In"}]}), "tolerations": [TOLERATION]},
        {"affinity": affinity({"matchExpressions": [{**OURS, "operator": "In"}, OURS]})},
    ),
}


@pytest.mark.parametrize(("before", "changes"), CASES.values(), ids=CASES)
def test_a_restart_steers(before, changes):
    assert resume_patch(before, Placement(left_behind=("old",), closure="c-1")) == {
        "metadata": {"annotations": {"gpu-upgrader.io/stopped": None}},
        "spec": {"suspend": False, "template": {"spec": changes}},
    }


def test_a_restart_without_anything_to_avoid_takes_our_marks_away():
    before = {"affinity": affinity({"matchExpressions": [OURS]}), "tolerations": [TOLERATION]}
    assert resume_patch(before, Placement())["spec"] == {
        "suspend": False,
        "template": {"spec": {"affinity": {"nodeAffinity": {REQUIRED: None}}, "tolerations": []}},
    }


def test_a_template_that_need_not_change_is_not_written():
    assert resume_patch({"tolerations": None, "affinity": {"nodeAffinity": None}}, Placement())["spec"] == {
        "suspend": False
    }


RECORDS = {
    "ours": ('{"plan":"p","request":"r","previous":false}', Record(plan="p", request="r")),
    "of a release that knows more": ('{"plan":"p","request":"r","at":"now"}', Record(plan="p", request="r")),
    "half written by somebody": ('{"plan":"p"}', None),
    "no JSON": ("yes", None),
}


@pytest.mark.parametrize(("text", "expected"), RECORDS.values(), ids=RECORDS)
def test_a_record_is_read_or_is_not_ours(text, expected):
    assert record_of({"gpu-upgrader.io/stopped": text}) == expected


def test_without_the_annotation_nothing_is_ours():
    assert record_of({}) is None


def test_the_names_are_those_of_the_api():
    assert (steering.STOPPED, steering.FENCE, steering.REVISION, steering.MAINTENANCE) == (
        names.ANNOTATION_STOPPED,
        names.ANNOTATION_FENCE,
        names.LABEL_REVISION,
        names.TAINT_MAINTENANCE,
    )
