"""A scripted server and our client of it."""

import socket

import pytest
from aiohttp import web

from tests.support.http import Stub, write_kubeconfig
from upgrader.kube.client import KubeCluster


@pytest.fixture
def stub():
    return Stub()


@pytest.fixture
async def address(stub):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stub.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        site = web.SockSite(runner, listener)
        await site.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        await runner.cleanup()


@pytest.fixture
def kubeconfig(tmp_path, address):
    return write_kubeconfig(tmp_path / "config", address)


@pytest.fixture
async def cluster(kubeconfig):
    async with await KubeCluster.connect(kubeconfig) as connected:
        yield connected
