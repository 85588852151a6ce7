"""Which way a connection to the API server takes, and that a netrc file plays no part in it."""

import aiohttp
import pytest
from yarl import URL

from tests.support.http import json, write_kubeconfig
from upgrader.api.resources import NODES
from upgrader.kube.client import KubeCluster
from upgrader.kube.proxies import session_settings

NODE = {"metadata": {"name": "n1", "resourceVersion": "7", "uid": "u1"}}
SERVER = "https://api.example:6443"
DIRECT = {"trust_env": False}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environment", "configured", "settings"),
    [
        ({}, None, DIRECT),
        ({"HTTP_PROXY": "http://proxy:3128"}, None, DIRECT),
        ({"HTTPS_PROXY": "http://proxy:3128"}, None, DIRECT | {"proxy": URL("http://proxy:3128")}),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "other,api.example"}, None, DIRECT),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "api.example:6443"}, None, DIRECT),
        ({"HTTPS_PROXY": "http://a", "NO_PROXY": "*"}, "http://b:1", DIRECT | {"proxy": URL("http://b:1")}),
        (
            {"https_proxy": "http://me:p%40ss@proxy:3128"},
            None,
            DIRECT | {"proxy": URL("http://me:p%40ss@proxy:3128")},
        ),
    ],
)
def test_the_proxy_of_the_kubeconfig_comes_before_that_of_the_environment(
    monkeypatch, environment, configured, settings
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert session_settings(SERVER, configured) == settings


async def test_a_netrc_file_that_names_every_server_changes_no_request(monkeypatch, tmp_path, kubeconfig, stub):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    stub.answers = [json(NODE)]
    async with await KubeCluster.connect(kubeconfig) as cluster:
        assert (await cluster.get(NODES, "n1")).metadata.name == "n1"
    assert stub.requests[0][3]["Authorization"] == "Bearer t0"


async def test_requests_go_by_the_proxy_with_its_credentials(monkeypatch, tmp_path, address, stub):
    monkeypatch.setenv("HTTP_PROXY", address.replace("//", "//me:secret@"))
    stub.answers = [json(NODE)]
    async with await KubeCluster.connect(write_kubeconfig(tmp_path / "far", "http://api.invalid")) as cluster:
        assert (await cluster.get(NODES, "n1")).metadata.name == "n1"
    _, _, _, headers = stub.requests[0]
    assert headers["Host"] == "api.invalid"
    assert headers["Proxy-Authorization"] == aiohttp.encode_basic_auth("me", "secret")
