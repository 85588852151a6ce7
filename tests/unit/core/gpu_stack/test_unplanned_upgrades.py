from datetime import timedelta

import pytest

from tests.support.facts import KERNEL, fresh_node, image, node
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack.unplanned_upgrades import (
    RETRY,
    Attempt,
    NodeNeed,
    find_need,
    is_adoption,
    next_attempt,
    why_closed,
)
from upgrader.core.model.fleet import RemovedDriver
from upgrader_dev.simulated.cluster.ports import START

HAS = image()
CATALOGUE = Catalogue([HAS])

NEEDS = {
    "nothing where its driver fits": ({"driver_key": HAS.key, "revision": "r"}, False, None),
    "its first driver": ({"driver_key": ""}, False, NodeNeed.INSTALL),
    "the driver that was taken away": ({"driver_key": "none"}, False, NodeNeed.INSTALL),
    "nothing where the driver is not known: that is a plan's": ({"driver_key": "other"}, False, None),
    "to be repaired on a new kernel": (
        {"driver_key": HAS.key, "revision": "r", "kernel": "6.1.0-50-amd64"},
        False,
        NodeNeed.REPAIR,
    ),
    "its claim is removed: the upgrade had not switched off": (
        {"driver_key": HAS.key, "revision": "r"},
        True,
        NodeNeed.RELEASE,
    ),
    "its claim is removed: it never had a driver": ({"driver_key": ""}, True, NodeNeed.RELEASE),
    "its claim is removed first, whatever its kernel": (
        {"driver_key": HAS.key, "revision": "r", "kernel": "6.1.0-50-amd64"},
        True,
        NodeNeed.RELEASE,
    ),
    "to be installed anew: it was off": ({"driver_key": "none", "operands": "off"}, True, NodeNeed.INSTALL),
    "to be installed anew: nobody knows whether it was valid": ({"driver_key": HAS.key}, True, NodeNeed.INSTALL),
}


@pytest.mark.parametrize(("facts", "orphaned", "needs"), NEEDS.values(), ids=NEEDS)
def test_a_node_needs(facts, orphaned, needs):
    found = node("a", **({"revision": "", "claimed_by": "uid-gone" if orphaned else ""} | facts))
    assert find_need(found, CATALOGUE, orphaned=orphaned) is needs


IN_SERVICE = {"driver_key": HAS.key, "operands": "on", "revision": "r"}
OFF = {"driver_key": "none", "operands": "off", "revision": ""}
TAKEN = RemovedDriver(driver=HAS.key, revision="r", kernel=KERNEL)
SWITCHED_OFF, NOT_ON = "its driver was switched off", "its operands are not switched on"
NOT_PROVEN = "its driver was switched on and was not validated"
ALONE = "its labels exclude it, or another operator manages it"
CLOSED = {
    "where it runs what it had": (node("a", **IN_SERVICE), ""),
    "with a driver of which nothing is known: it was not touched": (node("a", **IN_SERVICE | {"driver_key": "x"}), ""),
    "where no operand ever ran": (fresh_node("a"), ""),
    "where no operand runs but its operands were off": (fresh_node("a", operands="off"), SWITCHED_OFF),
    "where no operand runs but its revision is": (fresh_node("a", revision="r"), SWITCHED_OFF),
    "where no operand runs but once did": (fresh_node("a", removed_driver=TAKEN), SWITCHED_OFF),
    "where its driver is off": (node("a", **OFF), SWITCHED_OFF),
    "where its driver is off and all else is not": (node("a", **IN_SERVICE | {"driver_key": "none"}), SWITCHED_OFF),
    "where its driver was taken away": (node("a", **OFF, removed_driver=TAKEN), SWITCHED_OFF),
    "where its driver was taken away and all else tells otherwise": (
        node("a", **IN_SERVICE, removed_driver=TAKEN),
        SWITCHED_OFF,
    ),
    "where its new driver is being loaded": (node("a", **OFF | {"driver_key": HAS.key}), NOT_ON),
    "where all that tells of it is its driver": (fresh_node("a", driver_key=HAS.key), NOT_ON),
    "where its operands are off, whatever its revision": (node("a", **IN_SERVICE | {"operands": "off"}), NOT_ON),
    "where nobody knows of its operands": (node("a", **IN_SERVICE | {"operands": ""}), NOT_ON),
    "where its new driver was not proven": (node("a", **IN_SERVICE | {"revision": ""}), NOT_PROVEN),
    "where it came up with another kernel": (
        node("a", **IN_SERVICE, kernel="6.1.0-50-amd64"),
        "its driver is not for its kernel 6.1.0-50-amd64",
    ),
    "where a person wants it left alone": (node("a", **IN_SERVICE, skip=True), ALONE),
    "where another operator has it": (fresh_node("a", foreign_labels=("nvidia.com/gpu.deploy.driver",)), ALONE),
    "where it cannot be read": (node("a", **IN_SERVICE, unreadable="It cannot be read."), "It cannot be read."),
}


@pytest.mark.parametrize(("found", "why"), CLOSED.values(), ids=CLOSED)
def test_without_a_stack_a_node_opens_or_stays_closed(found, why):
    assert why_closed(found, CATALOGUE) == why


NOW = START + timedelta(hours=1)
ATTEMPTS = {
    "the first at once": ([], 1),
    "none beside one under way": ([Attempt(number=1, ended_at=None)], None),
    "none right after one ended": ([Attempt(number=1, ended_at=NOW - RETRY + timedelta(seconds=1))], None),
    "the next after a while": ([Attempt(number=1, ended_at=NOW - RETRY)], 2),
    "the last counts": ([Attempt(number=7, ended_at=NOW), Attempt(number=6, ended_at=START)], None),
}


@pytest.mark.parametrize(("before", "number"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_the_attempt_that_is_due(before, number):
    assert next_attempt(before, NOW) == number


def test_after_the_last_attempt_none_is_due():
    ended = [Attempt(number=number, ended_at=NOW - RETRY) for number in (1, 2)]
    assert [next_attempt(ended[:count], NOW, most=2) for count in (0, 1, 2)] == [1, 2, None]


def test_only_a_node_that_is_handed_over_and_not_taken_over_yet_is_adopted_by_its_next_upgrade():
    labels = ("nvidia.com/gpu.deploy.driver",)
    nodes = [
        fresh_node("a", foreign_labels=labels, adopted=True),
        fresh_node("b", foreign_labels=labels),
        fresh_node("c", adopted=True),
    ]
    assert [is_adoption(node) for node in nodes] == [True, False, False]
