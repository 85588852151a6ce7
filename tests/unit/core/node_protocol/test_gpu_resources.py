"""Which extended resources are a pool's GPUs, and how many of them there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.node_protocol.gpu_resources import PoolGpus, count_of, gpus_by_name, is_gpu

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("name", "resource", "counts"),
    [
        (GPU, GPU, True),
        ("nvidia.com/gpu.shared", GPU, True),
        ("nvidia.com/mig-1g.10gb", GPU, True),
        ("nvidia.com/mig-1g.5gb.me", GPU, True),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu.shared", True),
        (GPU, "nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", True),
        ("nvidia.com/gpu-a100.shared", "nvidia.com/gpu.shared", False),
        ("nvidia.com/mig-3g.40gb.shared", GPU, True),
        ("nvidia.com/gpu-a100", GPU, False),
        ("nvidia.com/hostdev", GPU, False),
        ("rdma/mig-1", GPU, False),
        ("example.com/gpu", "example.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", "example.com/gpu", False),
        (GPU, "example.com/gpu", False),
        ("cpu", GPU, False),
    ],
)
def test_partitions_and_shares_of_nvidias_plugin_are_gpus(name, resource, counts):
    assert is_gpu(name, resource) is counts


def test_what_is_none_is_not_named_and_what_is_no_number_is_none():
    values = {"cpu": "64", GPU: "2", "nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-2g.20gb": "0", f"{GPU}.shared": "1.5"}
    assert gpus_by_name(values, GPU) == {GPU: 2, "nvidia.com/mig-1g.10gb": 7}
    assert count_of(values, GPU) == 9


def test_a_thousand_is_written_with_its_suffix():
    assert gpus_by_name({GPU: "1k"}, GPU) == {GPU: 1000}


def test_a_pod_that_asks_for_a_number_that_cannot_be_read_holds_gpus_all_the_same():
    values = {"cpu": "many", GPU: "many", f"{GPU}.shared": "-1", "nvidia.com/mig-1g.10gb": "0"}
    gpus = PoolGpus(resource=GPU)
    assert gpus.requested_gpus(values) == {GPU: 1, f"{GPU}.shared": 1}
    assert gpus.unreadable_names(values) == [GPU, f"{GPU}.shared"]


RENAMED = PoolGpus(resource="example.com/gpu", former=(GPU,))


def test_pods_of_any_revision_of_the_stack_ask_for_gpus():
    values = {"cpu": "4", "example.com/gpu": 1, GPU: "2", f"{GPU}.shared": 3, "nvidia.com/mig-1g.10gb": 4, "a.b/gpu": 5}
    assert RENAMED.requested_gpus(values) == {
        "example.com/gpu": 1,
        GPU: 2,
        f"{GPU}.shared": 3,
        "nvidia.com/mig-1g.10gb": 4,
    }


@pytest.mark.parametrize(
    ("asked", "resource", "not_offered"),
    [
        ((GPU,), GPU, ""),
        ((f"{GPU}.shared",), GPU, ""),  # by another operator's plugin that renames
        ((GPU,), f"{GPU}.shared", GPU),
        ((GPU, "example.com/gpu"), "example.com/gpu", GPU),
        (("nvidia.com/mig-1g.10gb",), "example.com/gpu", ""),
        ((), GPU, ""),
    ],
)
def test_what_nodes_of_the_present_revision_do_not_offer(asked, resource, not_offered):
    assert PoolGpus(resource=resource, former=(GPU,)).not_offered(asked) == not_offered


OFFERS = {
    "the stack's own": ({"example.com/gpu": 8}, {"example.com/gpu": 8}, "example.com/gpu"),
    "a former one": ({GPU: 8}, {GPU: 8}, GPU),
    "a former plugin went a minute ago": (
        {GPU: 0, "example.com/gpu": 4},
        {GPU: 8, "example.com/gpu": 4},
        "example.com/gpu",
    ),
    "its plugin is away": ({GPU: 0}, {GPU: 8}, GPU),
    "nothing": ({}, {}, "example.com/gpu"),
}


@pytest.mark.parametrize(("allocatable", "capacity", "name"), OFFERS.values(), ids=OFFERS.keys())
def test_by_which_name_a_node_offers_gpus(allocatable, capacity, name):
    assert RENAMED.offered_as(allocatable, capacity) == name


@given(st.text("abgpu.-/", max_size=12), st.sampled_from(["", ".shared", ".shared.shared"]))
def test_what_a_stack_names_is_always_a_gpu(name, end):
    assert is_gpu(f"{name}{end}", f"{name}{end}")


NAMES = st.sampled_from([GPU, f"{GPU}.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-7g.80gb", "cpu", "rdma/hca"])


@given(st.dictionaries(NAMES, st.integers(-1, 9) | st.sampled_from(["0", "3", "-1", "2Gi", ""])))
def test_the_whole_is_the_sum_of_its_parts(values):
    named = gpus_by_name(values, GPU)
    assert count_of(values, GPU) == sum(named.values())
    assert all(count > 0 and is_gpu(name, GPU) for name, count in named.items())
