"""The real API server with our kinds, for every test of this folder."""

import uuid

import pytest

from tests.support.deploying import as_controller, deploy
from tests.support.workbench import Workbench
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader_dev.devcluster import delete_cluster


@pytest.fixture
async def api(kubeconfig):
    """Our client as admin; the kinds are installed."""
    async with await KubeCluster.connect(kubeconfig) as connected:
        await install_kinds(connected)
        yield connected


@pytest.fixture
async def controllers_kubeconfig(api, kubeconfig, tmp_path):
    """Of the controller's own service account, with deploy/ applied."""
    await deploy(api)
    return await as_controller(api, kubeconfig, tmp_path)


@pytest.fixture(scope="session")
def workbench(start_cluster, tmp_path_factory):
    """A box with the product's images and operands, moved by hand."""
    return Workbench(start_cluster("bench", boxes=1), "gpu-a", tmp_path_factory.mktemp("kubelets"))


@pytest.fixture
def installed(workbench):
    """The box with driver 1.0.0 and plugin 1 on it, offering eight devices."""
    workbench.on("1.0.0")
    workbench.wait_allocatable("8")
    return workbench


@pytest.fixture
def mark(monkeypatch):
    """An environment variable that everything started from this test inherits."""
    value = f"teardown-{uuid.uuid4().hex}"
    monkeypatch.setenv("UPGRADER_TEST_MARK", value)
    return value


@pytest.fixture
def name():
    """Of a cluster that a test puts up itself; gone afterwards."""
    chosen = f"td-{uuid.uuid4().hex[:6]}"
    yield chosen
    delete_cluster(chosen)
