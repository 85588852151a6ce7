"""Whether a kubelet is well: its own /healthz, and its Node as the API server shows it to the node's credentials."""

import http.client
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from upgrader.core import timing
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import Running
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.credentials import Access, access

TIMEOUT = 5.0
"""Seconds for one request."""


class _Configuration(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of a KubeletConfiguration; the defaults are the kubelet's."""

    healthz_port: int = 10248
    healthz_bind_address: str = "127.0.0.1"


class _Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str
    last_heartbeat_time: datetime | None = None


class _NodeInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    kubelet_version: str


class _NodeStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    node_info: _NodeInfo
    conditions: tuple[_Condition, ...] = ()


class _Node(Struct, frozen=True, kw_only=True):
    status: _NodeStatus


class NodeView(Struct, frozen=True, kw_only=True):
    """What the API server knows of the node; `heartbeat` in whole seconds since the epoch, by the node's clock."""

    kubelet_version: str
    ready: bool
    heartbeat: float


def healthz(host: Host, kubelet: Running) -> str:
    """What is wrong with a kubelet that runs, by its own word; empty when nothing is.

    Raises:
        OrderFailedError: it was told not to serve /healthz, so that nothing can be known.
    """
    address, port = _healthz_address(host, kubelet)
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        body = answer.read(200)
    except (OSError, http.client.HTTPException) as error:
        return f"its /healthz at {address}:{port} does not answer ({error})"
    finally:
        connection.close()
    return "" if answer.status == 200 else f"its /healthz says {answer.status} {body.decode(errors='replace')}"


def own_node(host: Host, kubelet: Running, name: str) -> NodeView:
    """The node's own object, read with the kubelet's credentials.

    Raises:
        OrderFailedError: the kubelet's kubeconfig cannot be used.
        OSError: no answer, or not the one wanted; the text says which.
    """
    answer = _get(access(host, kubelet.option("kubeconfig")), f"/api/v1/nodes/{name}")
    try:
        status = msgspec.json.decode(answer, type=_Node).status
    except msgspec.DecodeError as error:
        raise OSError(f"the API server's answer is no Node: {error}") from error
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    beat = ready.last_heartbeat_time if ready is not None else None
    return NodeView(
        kubelet_version=status.node_info.kubelet_version,
        ready=ready is not None and ready.status == "True",
        heartbeat=beat.timestamp() if beat is not None else 0.0,
    )


def ready_fault(view: NodeView, *, version: str, since: float) -> str:
    """What keeps a node from being Ready again under a version; empty when nothing does."""
    if view.kubelet_version.removeprefix("v") != version.removeprefix("v"):
        return f"the API server still shows kubelet {view.kubelet_version}"
    if view.heartbeat < int(since):  # heartbeats are written in whole seconds
        return f"no heartbeat since the restart, the last at {timing.show(datetime.fromtimestamp(view.heartbeat, UTC))}"
    return "" if view.ready else "the node is not Ready"


def _healthz_address(host: Host, kubelet: Running) -> tuple[str, int]:
    configuration = _Configuration()
    if path := kubelet.option("config"):
        configuration = msgspec.yaml.decode(host.path(path).read_bytes(), type=_Configuration)
    address = kubelet.option("healthz-bind-address", configuration.healthz_bind_address)
    port = int(kubelet.option("healthz-port", str(configuration.healthz_port)))
    if port == 0:
        raise OrderFailedError(
            Reason.MISSING, "the kubelet's /healthz is switched off (healthzPort 0), so a swap could not be judged"
        )
    return ("127.0.0.1" if address == "0.0.0.0" else address), port  # noqa: S104 - where it listens, not where we do


def _get(way: Access, path: str) -> bytes:
    server = urlsplit(way.server)
    connection = http.client.HTTPSConnection(
        server.hostname or "", server.port or 443, context=way.context, timeout=TIMEOUT
    )
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {way.token}"} if way.token else {})
    try:
        connection.request("GET", server.path.rstrip("/") + path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{way.server} answered nonsense: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{way.server} answered {answer.status} to GET {path}: {body[:200].decode(errors='replace')}")
    return body
