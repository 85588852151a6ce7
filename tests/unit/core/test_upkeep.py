from datetime import timedelta

import pytest

from tests.support.facts import image, node
from tests.support.world import START
from upgrader.core.catalogue import Catalogue
from upgrader.core.upkeep import RETRY, Attempt, Need, need, next_attempt

HAS = image()
CATALOGUE = Catalogue([HAS])

NEEDS = {
    "nothing where its driver fits": ({"driver_key": HAS.key, "revision": "r"}, False, None),
    "its first driver": ({"driver_key": ""}, False, Need.INSTALL),
    "the driver that was taken away": ({"driver_key": "none"}, False, Need.INSTALL),
    "nothing where the driver is not known: that is a plan's": ({"driver_key": "other"}, False, None),
    "to be brought back on a new kernel": (
        {"driver_key": HAS.key, "revision": "r", "kernel": "6.1.0-50-amd64"},
        False,
        Need.BRING_BACK,
    ),
    "its marks away: the visit had not switched off": ({"driver_key": HAS.key, "revision": "r"}, True, Need.UNMARK),
    "its marks away: it never had a driver": ({"driver_key": ""}, True, Need.UNMARK),
    "its marks away first, whatever its kernel": (
        {"driver_key": HAS.key, "revision": "r", "kernel": "6.1.0-50-amd64"},
        True,
        Need.UNMARK,
    ),
    "to be installed anew: it was off": ({"driver_key": "none", "operands": "off"}, True, Need.INSTALL),
    "to be installed anew: nobody knows whether it was valid": ({"driver_key": HAS.key}, True, Need.INSTALL),
}


@pytest.mark.parametrize(("facts", "orphaned", "needs"), NEEDS.values(), ids=NEEDS)
def test_a_node_needs(facts, orphaned, needs):
    found = node("a", **({"revision": "", "visit": "uid-gone" if orphaned else ""} | facts))
    assert need(found, CATALOGUE, orphaned=orphaned) is needs


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
