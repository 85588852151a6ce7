"""Who we are at the API server is said to it alone: not in an error, a log, a metric or an argument."""

import asyncio
import traceback

import pytest
from prometheus_client import generate_latest

from tests.support.http import json, write_kubeconfig
from tests.support.secrets import Secrets, programs
from tests.support.waiting import eventually
from upgrader.api.resources import NODES, PODS
from upgrader.controller.loops import LoopPauses, Loops
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.kube.client import KubeCluster
from upgrader.kube.connect import ApiServerLogin
from upgrader.telemetry import metrics

REFUSALS = (400, 401, 403, 404, 409, 422, 429, 500, 503)


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refused_step_is_logged_without_the_token(stub, address, tmp_path, secrets, capsys, caplog, status):
    token = secrets.make("token")
    kubeconfig = write_kubeconfig(tmp_path / "config", address, token)
    stub.answers = [json({"kind": "Status", "message": "no"}, status, **{"Retry-After": "60"})]
    told: list[str] = []

    async def logged() -> bool:
        told.extend(capsys.readouterr().out.splitlines())
        return any("step failed" in line or "conflict, requeued" in line for line in told)

    with programs() as started, caplog.at_level("DEBUG"):
        async with await KubeCluster.connect(kubeconfig) as cluster:

            async def step(name: str) -> float | None:
                await cluster.listing(NODES if name == "nodes" else PODS)
                return None

            loops = Loops({"GpuStack": step}, LoopPauses(first_retry=30))
            serving = asyncio.create_task(loops.serve())
            await asyncio.sleep(0)
            loops.wake("GpuStack", "nodes")
            await eventually(logged)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            with pytest.raises(UpgraderError) as raised:
                await cluster.get(NODES, "gpu-0")
    assert stub.requests[0][3]["Authorization"] == f"Bearer {token}"
    shown = "\n".join([*told, caplog.text, *traceback.format_exception(raised.value), raised.value.details])
    shown += generate_latest(metrics.REGISTRY).decode() + "\n".join(started)
    assert secrets.shown_in(shown) == []


USERS = {
    "no YAML": "users:\n- name: u\n  user:\n    token: {token}\n   client-key-data: {token}\n",
    "no string's end": "users:\n- name: u\n  user:\n    token: '{token}\n",
    "no object": "{token}",
    "a list": "[{token}]",
    "a user that is none": "users: [{{name: u, user: {token}}}]",
    "a user without a name": "users: [{token}]",
    "no base64": "users: [{{name: u, user: {{client-certificate-data: QUJD, client-key-data: {token}x}}}}]",
    "no text": "\xff{token}",
}
REST = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
async def test_a_kubeconfig_that_cannot_be_used_is_named_and_not_quoted(tmp_path, secrets, user):
    path = tmp_path / "config"
    text = user.format(token=secrets.make("token"))
    path.write_bytes((text + (REST if text.startswith("users") else "")).encode("latin-1"))
    with pytest.raises(ConfigurationError, match=str(path)) as raised:
        await ApiServerLogin(str(path)).load()
    shown = "".join(traceback.format_exception(raised.value)) + raised.value.details
    assert secrets.shown_in(shown) == []
