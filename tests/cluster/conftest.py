"""The real API server with our kinds, for every test of this folder."""

import pytest

from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds


@pytest.fixture
async def api(kubeconfig):
    """Our client as admin; the kinds are installed."""
    async with await KubeCluster.connect(kubeconfig) as connected:
        await install_kinds(connected)
        yield connected
