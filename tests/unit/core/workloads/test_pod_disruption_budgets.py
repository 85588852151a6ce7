import pytest

from tests.support.facts import gang, member
from upgrader.core.workloads.pod_disruption_budgets import (
    DisruptionBudget,
    Requirement,
    Selector,
    blocked_gangs,
    is_selected,
)


def needs(operator, *values):
    return Selector(requirements=(Requirement(key="app", operator=operator, values=values),))


TABLE = {
    "no selector selects nothing": (None, {"app": "train"}, False),
    "the empty selector selects everything": (Selector(), {}, True),
    "labels match": (Selector(labels={"app": "train"}), {"app": "train", "x": "y"}, True),
    "a label differs": (Selector(labels={"app": "train"}), {"app": "web"}, False),
    "a label is missing": (Selector(labels={"app": "train"}), {}, False),
    "In": (needs("In", "train", "web"), {"app": "web"}, True),
    "not In": (needs("In", "train"), {"app": "web"}, False),
    "In without the label": (needs("In", "train"), {}, False),
    "NotIn": (needs("NotIn", "train"), {"app": "web"}, True),
    "NotIn without the label": (needs("NotIn", "train"), {}, True),
    "NotIn, but it is": (needs("NotIn", "train"), {"app": "train"}, False),
    "Exists": (needs("Exists"), {"app": ""}, True),
    "Exists without the label": (needs("Exists"), {}, False),
    "DoesNotExist": (needs("DoesNotExist"), {}, True),
    "DoesNotExist, but it does": (needs("DoesNotExist"), {"app": "train"}, False),
    "both parts must hold": (
        Selector(labels={"x": "y"}, requirements=(Requirement(key="app", operator="Exists"),)),
        {"app": "train"},
        False,
    ),
    "an operator of the future selects: doubt holds": (needs("Gt", "3"), {}, True),
}


@pytest.mark.parametrize(("selector", "labels", "selected"), TABLE.values(), ids=TABLE.keys())
def test_selectors(selector, labels, selected):
    assert is_selected(selector, labels) is selected


def budget(name="keep", allowed=0, namespace="ml", selector=None):
    selector = selector or Selector(labels={"app": "train"})
    return DisruptionBudget(name=name, namespace=namespace, selector=selector, allowed=allowed)


def labelled(name="train", count=2, **changes):
    members = tuple(member(f"{name}-{number}", "a", labels={"app": name}) for number in range(count))
    return gang(name, [], members=members, wanted=count, **changes)


BLOCKED = {
    "no budget": ([], {}),
    "one that allows all its members": ([budget(allowed=2)], {}),
    "one that allows some of them only": ([budget(allowed=1)], {"ml/Job/train": "keep"}),
    "one of another namespace": ([budget(namespace="web")], {}),
    "one for other pods": ([budget(selector=Selector(labels={"app": "web"}))], {}),
}


@pytest.mark.parametrize(("budgets", "expected"), BLOCKED.values(), ids=BLOCKED.keys())
def test_a_gang_is_disrupted_whole(budgets, expected):
    assert blocked_gangs([labelled()], budgets) == expected


def test_replicas_are_disrupted_one_by_one():
    web = labelled(replicated=True)
    assert blocked_gangs([web], [budget(allowed=1)]) == {}
    assert blocked_gangs([web], [budget(allowed=0)]) == {web.name: "keep"}


def test_a_bare_pod_under_two_budgets_can_never_be_evicted_either():
    both = [budget("one", allowed=9), budget("two", allowed=9)]
    assert blocked_gangs([labelled(bare=True, owner=None)], both) == {"ml/Job/train": "one together with two"}
    assert blocked_gangs([labelled()], both) == {}


def test_a_replica_under_two_budgets_can_never_be_evicted():
    budgets = [budget("one", allowed=5), budget("two", allowed=5)]
    assert blocked_gangs([labelled(replicated=True)], budgets) == {"ml/Job/train": "one together with two"}
    assert blocked_gangs([labelled()], budgets) == {}
