"""What finds exporters, on a real API server with the controller's own rights: a ServiceMonitor comes with its kind."""

import msgspec
import pytest
import yaml

from tests.support.discovered import discovered
from tests.support.gangs_on_api import context_of
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api.resources import SERVICE_MONITORS, SERVICES
from upgrader.core.errors import ConfigurationError
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import CRDS
from upgrader.reconcile.operands import scraping

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(300)]

KIND = yaml.safe_load((ROOT / "tests/cluster/crds/servicemonitors.monitoring.coreos.com.yaml").read_text())
WHOLE = msgspec.structs.replace(SERVICE_MONITORS, type=dict)


async def monitors(api):
    """All ServiceMonitors; None while the kind is not served."""
    try:
        return await api.list(WHOLE)
    except ConfigurationError:
        return None


@pytest.fixture
async def without_the_kind(api):
    """Whatever an earlier test has left."""
    present = await api.get(CRDS, KIND["metadata"]["name"])
    if present is not None:
        await api.delete(CRDS, present.metadata)
        await eventually(lambda: _gone(api), seconds=120)
    yield api
    present = await api.get(CRDS, KIND["metadata"]["name"])
    if present is not None:
        await api.delete(CRDS, present.metadata)


async def _gone(api):
    return await monitors(api) is None


async def names(api):
    return [one.metadata.name for one in await api.list(SERVICES, "gpu-upgrader-system")]


async def test_a_servicemonitor_comes_with_its_kind_and_goes_with_its_stack(without_the_kind, controllers_kubeconfig):
    api = without_the_kind
    async with await KubeCluster.connect(controllers_kubeconfig) as before:
        assert await scraping.ensure_scraping(context_of(before), "pool-a") == ""
        (service,) = await names(api)
        await api.apply(CRDS, KIND)
        await eventually(lambda: discovered(controllers_kubeconfig, [SERVICE_MONITORS]), seconds=120)

    async with await KubeCluster.connect(controllers_kubeconfig) as cluster:  # one that has not asked what is served
        context = context_of(cluster)
        assert await scraping.ensure_scraping(context, "pool-a") == ""
        (made,) = await monitors(api)
        assert (made["metadata"]["name"], made["spec"]) == (
            service,
            {
                "selector": {
                    "matchLabels": {"gpu-upgrader.io/component": "monitoring", "gpu-upgrader.io/stack": "pool-a"}
                },
                "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "15s", "honorLabels": True}],
            },
        )
        await scraping.ensure_scraping(context, "pool-b")
        await scraping.remove_scraping(context, "pool-a")
        assert await names(api) != [service]
        assert len(await names(api)) == len(await monitors(api)) == 1
        await api.delete(CRDS, (await api.get(CRDS, KIND["metadata"]["name"])).metadata)
        await eventually(lambda: _gone(api), seconds=120)
        await scraping.remove_scraping(context, "pool-b")  # it is remembered as served for a minute
        assert await names(api) == []
