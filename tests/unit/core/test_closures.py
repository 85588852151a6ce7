import pytest

from tests.support.facts import gang, member
from upgrader.core.closures import Closure, closure_name, closures

A, B, C, D = "node-a", "node-b", "node-c", "node-d"


def closure(nodes, gangs=(), evicted=()):
    return Closure(name=closure_name(nodes), nodes=tuple(nodes), gangs=tuple(gangs), evicted=tuple(evicted))


TABLE = {
    "idle nodes stand alone": ([B, A], [], [closure([A]), closure([B])]),
    "a gang joins its nodes": ([A, B, C], [gang("x", [C, A])], [closure([A, C], ["ml/Job/x"]), closure([B])]),
    "gangs that share a node join all their nodes": (
        [A, B, C, D],
        [gang("x", [A, B]), gang("y", [B, C])],
        [closure([A, B, C], ["ml/Job/x", "ml/Job/y"]), closure([D])],
    ),
    "two gangs on one node are asked together": (
        [A],
        [gang("y", [A], gpus=4), gang("x", [A], gpus=4)],
        [closure([A], ["ml/Job/x", "ml/Job/y"])],
    ),
    "a node that needs no visit is no member, but its gang is asked": (
        [A],
        [gang("x", [A, B])],
        [closure([A], ["ml/Job/x"])],
    ),
    "a node that needs no visit does not pass closures on": (
        [A, C],
        [gang("x", [A, B]), gang("y", [B, C])],
        [closure([A], ["ml/Job/x"]), closure([C], ["ml/Job/y"])],
    ),
    "a gang elsewhere is left alone": ([A], [gang("x", [B])], [closure([A])]),
    "replicas are evicted one by one and join nothing": (
        [A, B],
        [gang("web", [A, B], replicated=True, method="")],
        [closure([A], evicted=["ml/Job/web"]), closure([B], evicted=["ml/Job/web"])],
    ),
    "a member without a node joins nothing": (
        [A],
        [gang("x", [], members=(member("x-0", A), member("x-1", "", phase="Pending")))],
        [closure([A], ["ml/Job/x"])],
    ),
    "a launcher without GPUs drags its node in, if it is to be visited": (
        [A, B],
        [gang("x", [], members=(member("x-0", A), member("x-launcher", B, gpus=0)))],
        [closure([A, B], ["ml/Job/x"])],
    ),
    "nothing to visit": ([], [gang("x", [A])], []),
}


@pytest.mark.parametrize(("visited", "gangs", "expected"), TABLE.values(), ids=TABLE.keys())
def test_closures(visited, gangs, expected):
    assert closures(visited, gangs) == tuple(expected)


def test_a_closures_name_is_that_of_its_nodes():
    assert closure_name([A, B]) == closure_name([B, A]) == "c-fab6a7fd6c"
    assert closure_name(["ab", "c"]) != closure_name(["a", "bc"])
