"""Whether a kubelet is healthy: by its /healthz, and by its Node, read with the credentials of the node."""

import http.client
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from upgrader.core import timing
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.credentials import ApiAccess, read_access

TIMEOUT = 5.0
"""Timeout of a request, in seconds."""


class _Configuration(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of a KubeletConfiguration; the defaults are those of the kubelet."""

    healthz_port: int = 10248
    healthz_bind_address: str = "127.0.0.1"


class _Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str
    last_heartbeat_time: datetime | None = None


class _NodeInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    kubelet_version: str
    container_runtime_version: str = ""


class _NodeStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    node_info: _NodeInfo
    conditions: tuple[_Condition, ...] = ()


class _Node(Struct, frozen=True, kw_only=True):
    status: _NodeStatus


class NodeReadiness(Struct, frozen=True, kw_only=True):
    """Fields of the Node; `heartbeat` in whole seconds since the epoch, by the clock of the node.

    `runtime` is the container runtime with its version, such as containerd://2.1.4.
    """

    kubelet_version: str
    ready: bool
    heartbeat: float
    runtime: str = ""


def healthz_fault(host: Host, kubelet: RunningKubelet) -> str:
    """The fault that /healthz of a running kubelet reports; empty if it is healthy.

    Raises:
        OrderFailedError: /healthz is disabled.
    """
    address, port = _healthz_address(host, kubelet)
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        body = response.read(200)
    except (OSError, http.client.HTTPException) as error:
        return f"its /healthz at {address}:{port} does not respond ({error})"
    finally:
        connection.close()
    return "" if response.status == 200 else f"its /healthz returned {response.status} {body.decode(errors='replace')}"


def read_own_node(host: Host, kubelet: RunningKubelet, name: str) -> NodeReadiness:
    """Read the Node with the credentials of the kubelet.

    Raises:
        OrderFailedError: the kubeconfig of the kubelet cannot be used.
        OSError: the request failed, or the response is not a Node.
    """
    body = get_body(read_access(host, kubelet.option("kubeconfig")), f"/api/v1/nodes/{name}")
    try:
        status = msgspec.json.decode(body, type=_Node).status
    except msgspec.DecodeError as error:
        raise OSError(f"the response of the API server is not a Node: {error}") from error
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    heartbeat = ready.last_heartbeat_time if ready is not None else None
    return NodeReadiness(
        kubelet_version=status.node_info.kubelet_version,
        ready=ready is not None and ready.status == "True",
        heartbeat=heartbeat.timestamp() if heartbeat is not None else 0.0,
        runtime=status.node_info.container_runtime_version,
    )


def ready_fault(view: NodeReadiness, *, version: str, since: float) -> str:
    """Why a node is not Ready with a version of the kubelet; empty if it is."""
    if view.kubelet_version.removeprefix("v") != version.removeprefix("v"):
        return f"the Node still has kubelet {view.kubelet_version}"
    if view.heartbeat < int(since):  # heartbeats are written in whole seconds
        last = timing.format_time(datetime.fromtimestamp(view.heartbeat, UTC))
        return f"no heartbeat since the restart, the last at {last}"
    return "" if view.ready else "the node is not Ready"


def _healthz_address(host: Host, kubelet: RunningKubelet) -> tuple[str, int]:
    configuration = _Configuration()
    if path := kubelet.option("config"):
        configuration = msgspec.yaml.decode(host.path(path).read_bytes(), type=_Configuration)
    address = kubelet.option("healthz-bind-address", configuration.healthz_bind_address)
    port = int(kubelet.option("healthz-port", str(configuration.healthz_port)))
    if port == 0:
        raise OrderFailedError(
            Reason.MISSING,
            "/healthz of the kubelet is disabled (healthzPort 0), so the upgrade could not check the new kubelet",
        )
    return ("127.0.0.1" if address == "0.0.0.0" else address), port  # noqa: S104 - an address of the kubelet


def get_body(access: ApiAccess, path: str) -> bytes:
    """The body of a GET request to the API server.

    Raises:
        OSError: the request failed.
    """
    server = urlsplit(access.server)
    connection = http.client.HTTPSConnection(
        server.hostname or "", server.port or 443, context=access.context, timeout=TIMEOUT
    )
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {access.token}"} if access.token else {})
    try:
        connection.request("GET", server.path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        body = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"{access.server} sent an invalid response: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise OSError(
            f"{access.server} returned {response.status} for GET {path}: {body[:200].decode(errors='replace')}"
        )
    return body
