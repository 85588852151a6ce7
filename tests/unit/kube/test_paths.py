"""What is sent goes where it says: no endpoint of a job and no name of an object leads to another path."""

import pytest

from tests.support.http import json
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.resources import NODES
from upgrader.core.errors import ConfigurationError, UnaskableError

MEMBER = Pod(metadata=ObjectMeta(name="p1", namespace="ml"))
STATUS_404 = {"kind": "Status", "details": {"name": "n1", "kind": "nodes"}}

ELSEWHERE = (
    ":8080/../../../../../../../apis/apps/v1/namespaces/gpu-upgrader-system/daemonsets/driver-abc",
    "/../../../../../secrets",
    ":8080/%2e%2e/%2e%2e/x",
    ":8080//x",
    ":8080/./x",
    ":8080/..",
    ":8080/x\\..\\y",
    ":8080/x#y",
    ":8080/x?y",
    ":8080/x?requestId=7&y=8",
    ":8080/x y",
    ":8080/x\n",
    ":80@elsewhere",
    ":65536",
    ":0",
    "",
    "/x",
)


@pytest.mark.parametrize("endpoint", ELSEWHERE)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_endpoint_that_leads_out_of_its_pod_is_not_called(cluster, stub, method, endpoint):
    with pytest.raises(UnaskableError, match="is no endpoint that may be called"):
        await cluster.call(MEMBER, method, endpoint)
    assert stub.requests == []


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/b.c/~d/e-f_g/", "/.well-known/x", "/a..b"])
async def test_an_endpoint_is_called_as_it_was_declared(cluster, stub, path):
    stub.answers = [json({})]
    await cluster.call(MEMBER, "GET", f":8080{path}")
    assert stub.requests[0][1] == f"/api/v1/namespaces/ml/pods/p1:8080/proxy{path}"


@pytest.mark.parametrize("name", ["..", ".", "../secrets", "a/../b", "a//b"])
async def test_no_name_leads_to_another_path(cluster, stub, name):
    with pytest.raises(ConfigurationError, match="is not a path of an object"):
        await cluster.get(NODES, name)
    assert stub.requests == []


async def test_a_name_is_sent_encoded(cluster, stub):
    stub.answers = [json(STATUS_404, status=404)]
    assert await cluster.get(NODES, "a b%2e%2e?c#d") is None
    assert stub.raw == ["/api/v1/nodes/a%20b%252e%252e%3Fc%23d"]
