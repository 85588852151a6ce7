"""What a ResourceClaim says of its devices: doubt counts as a GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claims import NVIDIA, allocated
from upgrader.core.model.device_claims import count_gpus, describe_holders


def asking(*requests):
    return {"spec": {"devices": {"requests": list(requests)}}}


CLAIMS = {
    "two GPUs": (allocated(NVIDIA, NVIDIA), 2),
    "one of a vendor that is not known": (allocated("accelerator.example.com"), 1),
    "a network interface": (allocated("dra.net"), 0),
    "a GPU and its network interface": (allocated(NVIDIA, "dra.net"), 1),
    "a device without a driver": ({"status": {"allocation": {"devices": {"results": [{"driver": 7}, "?"]}}}}, 2),
    "not allocated, v1": (asking({"name": "a", "exactly": {"deviceClassName": "mig.nvidia.com"}}), 1),
    "not allocated, v1beta1": (asking({"name": "a", "deviceClassName": "big"}), 1),
    "the first that is free": (
        asking({"firstAvailable": [{"deviceClassName": "dra.net"}, {"deviceClassName": NVIDIA}]}),
        1,
    ),
    "not allocated, of CPUs": (asking({"exactly": {"deviceClassName": "dra.cpu"}}), 0),
    "nothing that can be read": ({"spec": "gone", "status": []}, 1),
    "nothing": ({}, 1),
}


@pytest.mark.parametrize(("claim", "gpus"), CLAIMS.values(), ids=CLAIMS.keys())
def test_gpus_of_a_claim(claim, gpus):
    assert count_gpus(claim) == gpus


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "status", "devices", "requests", "allocation", "results", "driver", "exactly"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_a_claim_looks_like_it_is_counted(claim):
    assert count_gpus(claim if isinstance(claim, dict) else {}) >= 0


def test_holders_are_named():
    assert describe_holders(["ml/b", "ml/a"]) == (
        "ml/a, ml/b hold GPUs by ResourceClaim (dynamic resource allocation). The operator cannot request "
        "checkpoints from such jobs or stop them, so no upgrade begins there until they have ended"
    )
