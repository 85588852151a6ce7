import pytest

from tests.support.facts import gang, member, node
from tests.support.forecasts import cost
from upgrader.core.constraints.budget import Availability, Cost, allowed_gpus, pool_availability
from upgrader.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("value", "total", "gpus"),
    [
        (4, 100, 4),
        (0, 100, 0),
        ("25%", 32, 8),
        ("33%", 10, 3),
        ("99%", 1, 0),
        ("100%", 7, 7),
        ("0%", 8, 0),
        (500, 8, 500),
    ],
)
def test_the_budget_is_rounded_down(value, total, gpus):
    assert allowed_gpus(value, total) == gpus


@pytest.mark.parametrize("value", [-1, "101%", "10", "ten", "-5%", "10.5%", "", True, "25 %"])
def test_anything_else_is_refused_with_what_to_write(value):
    with pytest.raises(ConfigurationError) as error:
        allowed_gpus(value, 100)
    assert error.value.brief == f"maxUnavailable is {value!r}"
    assert error.value.resolution == "Give a number of GPUs (16) or a percentage of the pool's GPUs (25%)."


SERVICE = {
    "a node in service takes nothing": ({}, 8, 0),
    "not Ready": ({"ready": False}, 8, 8),
    "cordoned by somebody": ({"unschedulable": True}, 8, 8),
    "in a node upgrade": ({"claimed_by": "uid-upgrade"}, 8, 8),
    "with our taint left on it": ({"maintenance": "c-1"}, 8, 8),
    "operands off": ({"operands": "off"}, 8, 8),
    "its driver was taken away": ({"driver_key": "none", "gpus": 8}, 8, 8),
    "two unhealthy GPUs": ({"gpus_allocatable": 6}, 8, 2),
    "a plugin that went away: as many GPUs as the largest node, all unavailable": (
        {"gpus": 0, "gpus_allocatable": 0},
        8,
        8,
    ),
    "never installed: no GPUs were in service yet": ({"driver_key": "", "gpus": 0, "gpus_allocatable": 0}, 0, 0),
    "never installed, but somebody else's driver offers GPUs": ({"driver_key": ""}, 8, 0),
}


@pytest.mark.parametrize(("changes", "size", "gone"), SERVICE.values(), ids=SERVICE.keys())
def test_what_of_a_node_is_out_of_service(changes, size, gone):
    pool = pool_availability([node("a", **changes), node("b")], "50%")
    assert pool == Availability(
        allowed=(size + 8) // 2,
        sizes={"a": size, "b": 8},
        credited={"a": size, "b": 8},
        unavailable={"a": gone} if gone else {},
        total=size + 8,
        taken=gone,
    )
    assert pool.remaining == max(0, (size + 8) // 2 - gone)


def test_a_node_whose_driver_is_for_another_kernel_is_down_although_it_looks_well():
    assert pool_availability([node("a")], 8, broken=frozenset({"a"})).unavailable == {"a": 8}


def test_what_other_plans_have_out_of_service_counts():
    pool = pool_availability([node("a"), node("b")], 8, elsewhere=6)
    assert (pool.taken, pool.remaining) == (6, 2)


def test_a_pool_without_any_known_gpu_is_not_a_pool_without_gpus():
    pool = pool_availability([node("a", gpus=0, gpus_allocatable=0)], "100%")
    assert (pool.total, pool.taken) == (1, 1)


@pytest.mark.parametrize(
    ("gpus", "most", "allowed"),
    [
        ([8, 8, 8_000_000], "25%", 6),
        ([8, 4, 4], "50%", 6),
        ([8, 4, 4], "100%", 16),  # all that there is
        ([8, 4, 4], 16, 16),
        ([8], "50%", 4),  # nobody to compare it with
    ],
)
def test_a_node_adds_no_more_to_a_percentage_than_a_second_one_has(gpus, most, allowed):
    pool = pool_availability([node(f"n-{place}", gpus=count) for place, count in enumerate(gpus)], most)
    assert (pool.allowed, pool.total) == (allowed, sum(gpus))


def test_an_invented_size_is_not_lent_to_a_node_of_which_nothing_is_known():
    pool = pool_availability(
        [node("a"), node("b"), node("liar", gpus=999), node("away", gpus=0, gpus_allocatable=0)], "50%"
    )
    assert (pool.allowed, pool.unavailable) == (16, {"away": 999, "liar": 991})


NODES = [node("a"), node("b"), node("c", unschedulable=True), node("d", gpus_allocatable=5)]
COSTS = {
    "an idle node costs its GPUs": (["a"], [], Cost(gpus=8, added=8)),
    "a gang on its upgrade group's nodes costs nothing more": (
        ["a", "b"],
        [gang("x", ["a", "b"])],
        Cost(gpus=16, added=16),
    ),
    "GPUs of a gang on a node that is not upgraded count": (
        ["a"],
        [gang("x", ["a", "b"], gpus=2)],
        Cost(gpus=10, added=10),
    ),
    "a cordoned node takes nothing from service that was in it": (["c"], [], Cost(gpus=8, added=0)),
    "nor do a gang's GPUs on one": (["a"], [gang("x", ["a", "c"])], Cost(gpus=16, added=8)),
    "of unhealthy GPUs only the healthy ones are added": (["d"], [], Cost(gpus=8, added=5)),
    "a gang elsewhere adds at most what is in service there": (["a"], [gang("x", ["a", "d"])], Cost(gpus=16, added=13)),
    "a node outside the pool counts whole": (["a"], [gang("x", ["a", "z"], gpus=4)], Cost(gpus=12, added=12)),
    "a member without a node costs nothing": (
        ["a"],
        [gang("x", [], members=(member("x-0", "a"), member("x-1", "", phase="Pending")))],
        Cost(gpus=8, added=8),
    ),
}


@pytest.mark.parametrize(("upgraded", "stopped", "expected"), COSTS.values(), ids=COSTS.keys())
def test_costs(upgraded, stopped, expected):
    assert cost(upgraded, stopped, pool_availability(NODES, 16)) == expected
