"""What a real API server says of pods that a node upgrade will make: before the upgrade, and nothing is kept of it."""

import uuid

import msgspec
import pytest

from tests.support.node_upgrades import state, upgrade
from tests.support.rendered import CUDA_SAMPLE, SETTINGS, UPGRADED
from tests.support.waiting import eventually
from upgrader.api.resources import NAMESPACES, PODS
from upgrader.core.errors import UpgraderError
from upgrader.stack import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

QUOTAS = msgspec.structs.replace(PODS, kind="ResourceQuota", plural="resourcequotas", type=dict)
ACCOUNTS = msgspec.structs.replace(PODS, kind="ServiceAccount", plural="serviceaccounts", type=dict)
RUNTIME_CLASSES = msgspec.structs.replace(
    NAMESPACES, group="node.k8s.io", kind="RuntimeClass", plural="runtimeclasses", type=dict
)


@pytest.fixture
def name():
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def namespace(api, name):
    """A namespace of its own, in which pods of the operator are allowed as deploy/ allows them."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    made = await api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    await api.create(ACCOUNTS, {"metadata": {"name": SETTINGS.service_account, "namespace": name}})
    yield made.metadata
    await api.delete(NAMESPACES, made.metadata)


async def refused(api, name, **target):
    """What the API server says of the first pod that it would not take; empty where it takes them all."""
    settings = msgspec.structs.replace(SETTINGS, namespace=name)
    node_upgrade = upgrade(target=state("570.10", "1.35.4", "b", **target), found={"gpus": 8})
    shown = manifests.rehearsal_pods(node_upgrade, UPGRADED, settings)
    pods = [*shown.forward, *shown.revert]
    assert (len(shown.forward), len(shown.revert)) == (4, 2)
    try:
        for pod in pods:
            await api.rehearse(PODS, pod)
    except UpgraderError as error:
        return error.details
    assert await api.list(PODS, name) == []
    return ""


async def refused_for(api, name, reason):
    """The admission of an API server reads quotas and labels from caches that follow a write some time later."""
    await eventually(lambda: refused(api, name), lambda details: reason in details)


async def test_all_pods_of_a_node_upgrade_are_taken(api, name, namespace):
    assert await refused(api, name) == ""


async def test_a_runtime_class_that_is_not_there_is_found(api, name, namespace):
    sample = CUDA_SAMPLE | {"workloadRuntime": name}
    target = {"vendor": "nvidia", "driverVendor": "nvidia", **sample}
    assert f'RuntimeClass "{name}" not found' in await refused(api, name, **target)
    body = {"apiVersion": "node.k8s.io/v1", "metadata": {"name": name}, "handler": "runc"}
    made = await api.create(RUNTIME_CLASSES, body)
    assert await refused(api, name, **target) == ""
    meta = msgspec.convert(made["metadata"], type(namespace), strict=False)
    await api.delete(RUNTIME_CLASSES, meta)


async def test_a_quota_that_leaves_no_room_for_the_validation_is_found(api, name, namespace):
    spec = {"hard": {"requests.nvidia.com/gpu": "7"}}
    await api.create(QUOTAS, {"metadata": {"name": "gpus", "namespace": name}, "spec": spec})
    await refused_for(api, name, "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8")


async def test_pod_security_that_lets_no_privileged_pod_in_is_found(api, name, namespace):
    await api.merge(NAMESPACES, namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
    await refused_for(api, name, 'violates PodSecurity "baseline:latest"')
