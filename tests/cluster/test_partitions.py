"""A real kubelet that offers GPUs by the name of a MIG partition, as NVIDIA's plugin does with strategy `mixed`.

The devices are simulated; that NVIDIA's plugin uses these names is its documentation's word.
"""

import msgspec
import pytest

from tests.support.programs import soon
from tests.support.workbench import PLUGIN, RESOURCE
from upgrader.api import names
from upgrader.core.model.revisions import plugin_key
from upgrader.core.node_protocol.orders import Reason
from upgrader.stack import manifests
from upgrader.stack.naming import validation_name
from upgrader_dev.simulated.cluster.placing import PARTITION

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def partitioned(installed):
    """The box with a plugin that offers the eight devices as partitions, where they were whole before."""
    bench = installed
    image = bench.product.plugins["1"]
    key = plugin_key(digest=image, resource_name=PARTITION)
    told = msgspec.structs.replace(PLUGIN, resource_name=PARTITION)
    daemonset = manifests.plugin_daemonset("stack", key, image, told, bench.settings)
    path = f"/apis/apps/v1/namespaces/{bench.settings.namespace}/daemonsets"
    bench.api.create(path, daemonset)
    bench.label({names.LABEL_DEVICE_PLUGIN: key})
    soon(lambda: offered(bench) == ("0", "8"), 90)  # the new plugin may register before the old one is gone
    yield bench
    name = daemonset["metadata"]["name"]
    bench.api.delete(f"{path}/{name}")
    soon(lambda: not plugin_pods(bench, name), 90)  # a plugin that still runs would register again
    bench.node.restart("kubelet")  # it forgets what no plugin offers any more
    soon(lambda: status(bench)["capacity"].get(PARTITION, "0") == "0", 90)


def plugin_pods(bench, daemonset):
    return [pod for pod in bench.api.get(bench.pods)["items"] if pod["metadata"]["name"].startswith(f"{daemonset}-")]


def status(bench):
    return bench.api.get(f"/api/v1/nodes/{bench.node.name}")["status"]


def offered(bench):
    """The whole GPUs and the partitions that may be asked for."""
    allocatable = status(bench)["allocatable"]
    return allocatable.get(RESOURCE), allocatable.get(PARTITION)


def test_partitions_count_as_gpus_and_are_validated_by_their_own_name(partitioned):
    bench = partitioned
    seen = bench.facts()
    # the whole ones are gone, and yet part of the capacity: that is why an upgrade that partitions does not go by it
    assert (status(bench)["capacity"][RESOURCE], offered(bench)) == ("8", ("0", "8"))
    assert (seen.gpus, seen.gpus_allocatable, seen.gpus_in_parts) == (16, 8, ((PARTITION, 8),))

    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("1.0.0", "1.34.4"))
    code, result = bench.run(
        manifests.validation_pod(
            upgrade,
            reverting=False,
            node=msgspec.structs.replace(seen, gpus=seen.gpus_allocatable),
            settings=bench.settings,
        )
    )
    assert (code, result.reason) == (0, Reason.DONE), result

    found = bench.api.get(f"{bench.pods}/{validation_name(upgrade, reverting=False)}")
    looked = next(one for one in found["status"]["initContainerStatuses"] if one["name"] == "driver")
    assert f"8 x {PARTITION} advertised" in looked["state"]["terminated"]["message"]
    assert found["spec"]["containers"][0]["resources"]["limits"][PARTITION] == "8"
