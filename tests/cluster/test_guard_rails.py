"""Guard rails on a real API server and scheduler: a quota refuses, a higher priority pushes a lower one out."""

import msgspec
import pytest
import yaml

from tests.support.guard_rails import STACK
from tests.support.programs import soon
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.errors import DevClusterError
from upgrader.stack.guard_rails import guard_rails
from upgrader_dev.devcluster import KwokSpec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NAMESPACES, CLASSES = "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"
PODS, QUOTAS = f"{NAMESPACES}/team-a/pods", f"{NAMESPACES}/team-a/resourcequotas"


@pytest.fixture(scope="module")
def rails(start_cluster):
    """One node of kwok with four GPUs; all is applied but the Tuned, whose kind is not there."""
    cluster = start_cluster("rails", boxes=0, kwok=KwokSpec(count=1, gpus=4, labels={"pool": "a", "zone": "z1"}))
    cluster.api.create(NAMESPACES, {"metadata": {"name": "team-a"}})
    soon(lambda: cluster.api.get(f"{NAMESPACES}/team-a/serviceaccounts/default"), 60)
    stack = msgspec.convert(yaml.safe_load(STACK), GpuStack)
    for one in guard_rails(stack):
        path = {"PriorityClass": CLASSES, "ResourceQuota": QUOTAS}.get(one["kind"])
        assert path is None or cluster.api.create(path, one)
    soon(lambda: len(used(cluster)) == 2, 60)
    return cluster


def used(cluster):
    """What each quota counts, once its controller has looked."""
    key = "requests.nvidia.com/gpu"
    found = [one.get("status", {}).get("used", {}) for one in cluster.api.get(QUOTAS)["items"]]
    return [int(one[key]) for one in found if key in one]


def pod(name, gpus, priority):
    container = {"name": "c", "image": "localhost/pause:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    tolerations = [{"key": "kwok", "operator": "Exists"}]
    return {
        "metadata": {"name": name},
        "spec": {"priorityClassName": priority, "containers": [container], "tolerations": tolerations},
    }


def phase(cluster, name):
    found = cluster.api.get(f"{PODS}/{name}")
    return found["status"]["phase"] if found else "gone"


def test_a_pod_beyond_the_quota_is_refused_and_a_higher_priority_takes_the_place_of_a_lower_one(rails):
    with pytest.raises(DevClusterError, match=r"(?s)403.*exceeded quota"):
        rails.api.create(PODS, pod("greedy", 9, "gpu-spare"))

    rails.api.create(PODS, pod("spare", 4, "gpu-spare"))
    soon(lambda: phase(rails, "spare") == "Running", 60)
    with pytest.raises(DevClusterError, match="exceeded quota"):  # two GPUs of the production class, no more
        rails.api.create(PODS, pod("much", 3, "gpu-production"))
    rails.api.create(PODS, pod("production", 2, "gpu-production"))
    soon(lambda: phase(rails, "production") == "Running", 60)
    assert phase(rails, "spare") == "gone"
