import pytest

from tests.support.facts import gang, member
from upgrader.core.constraints.upgrade_groups import UpgradeGroup, build_groups, group_name

A, B, C, D = "node-a", "node-b", "node-c", "node-d"


def group(nodes, gangs=(), evicted=()):
    return UpgradeGroup(name=group_name(nodes), nodes=tuple(nodes), gangs=tuple(gangs), evicted=tuple(evicted))


TABLE = {
    "idle nodes stand alone": ([B, A], [], [group([A]), group([B])]),
    "a gang joins its nodes": ([A, B, C], [gang("x", [C, A])], [group([A, C], ["ml/Job/x"]), group([B])]),
    "gangs that share a node join all their nodes": (
        [A, B, C, D],
        [gang("x", [A, B]), gang("y", [B, C])],
        [group([A, B, C], ["ml/Job/x", "ml/Job/y"]), group([D])],
    ),
    "two gangs on one node are asked together": (
        [A],
        [gang("y", [A], gpus=4), gang("x", [A], gpus=4)],
        [group([A], ["ml/Job/x", "ml/Job/y"])],
    ),
    "a node that needs no upgrade is no member, but its gang is asked": (
        [A],
        [gang("x", [A, B])],
        [group([A], ["ml/Job/x"])],
    ),
    "a node that needs no upgrade does not pass upgrade groups on": (
        [A, C],
        [gang("x", [A, B]), gang("y", [B, C])],
        [group([A], ["ml/Job/x"]), group([C], ["ml/Job/y"])],
    ),
    "a gang elsewhere is left alone": ([A], [gang("x", [B])], [group([A])]),
    "replicas are evicted one by one and join nothing": (
        [A, B],
        [gang("web", [A, B], replicated=True, method="")],
        [group([A], evicted=["ml/Job/web"]), group([B], evicted=["ml/Job/web"])],
    ),
    "a member without a node joins nothing": (
        [A],
        [gang("x", [], members=(member("x-0", A), member("x-1", "", phase="Pending")))],
        [group([A], ["ml/Job/x"])],
    ),
    "a launcher without GPUs drags its node in, if it is to be upgraded": (
        [A, B],
        [gang("x", [], members=(member("x-0", A), member("x-launcher", B, gpus=0)))],
        [group([A, B], ["ml/Job/x"])],
    ),
    "nothing to upgrade": ([], [gang("x", [A])], []),
}


@pytest.mark.parametrize(("upgraded", "gangs", "expected"), TABLE.values(), ids=TABLE.keys())
def test_groups(upgraded, gangs, expected):
    assert build_groups(upgraded, gangs) == tuple(expected)


def test_a_groups_name_is_that_of_its_nodes():
    assert group_name([A, B]) == group_name([B, A]) == "c-fab6a7fd6c"
    assert group_name(["ab", "c"]) != group_name(["a", "bc"])
