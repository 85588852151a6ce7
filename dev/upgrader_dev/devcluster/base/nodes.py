"""What every sort of node of the cluster can do, and reading and waiting for what its Node object says."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec
import tenacity
from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base.api import NODES, ApiServer

READY_SECONDS = 120.0


class Node(Protocol):
    """One node of any sort. What only some have (containers to look into, processes to stop) is on their classes."""

    @property
    def name(self) -> str:
        """The name of its Node object."""
        ...

    @property
    def sort(self) -> Literal["box", "kwok", "virtual"]:
        """What is real about it: see docs/contributing/dev-cluster.md."""
        ...

    def power_off(self) -> None:
        """At once, as when the cable is pulled; its pods stay in the API until somebody takes them away."""
        ...

    def power_on(self) -> None:
        """Boot, with a new boot id and the kernel name that was set last. The Node object is made if it is gone."""
        ...

    def cut(self) -> None:
        """Off the network: the API server hears no more of it."""
        ...

    def join(self) -> None:
        """On the network again, same boot id."""
        ...

    def set_kernel(self, kernel: str) -> None:
        """The kernel of the next power-on; empty for the usual one. All but virtual nodes have its name only."""
        ...

    def wait_ready(self, seconds: float = READY_SECONDS) -> "NodeState":
        """Until it is Ready on its present boot."""
        ...

    def wait_not_ready(self, seconds: float = READY_SECONDS) -> "NodeState":
        """Until the control plane has noticed that it is silent."""
        ...


class NodeState(Struct, frozen=True, kw_only=True):
    """What a Node object says. `ready`: True, False or Unknown."""

    ready: str
    boot_id: str
    kernel: str
    kubelet: str
    allocatable: dict[str, str]


class _Condition(Struct, frozen=True):
    type: str
    status: str


class _Info(Struct, frozen=True, rename="camel"):
    kernel_version: str = ""
    kubelet_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class _Status(Struct, frozen=True, rename="camel"):
    conditions: list[_Condition] = []
    node_info: _Info = _Info()
    allocatable: dict[str, str] = {}


def node_state(node: dict[str, Any]) -> NodeState:
    """The few fields of a Node object."""
    status = msgspec.convert(node.get("status", {}), _Status)
    ready = next((condition.status for condition in status.conditions if condition.type == "Ready"), "Unknown")
    info = status.node_info
    return NodeState(
        ready=ready,
        boot_id=info.boot_id,
        kernel=info.kernel_version,
        kubelet=info.kubelet_version,
        allocatable=status.allocatable,
    )


def wait_for_node(
    api: ApiServer, name: str, wanted: Callable[[NodeState], bool], seconds: float, what: str, why: Callable[[], str]
) -> NodeState:
    """Look at a Node until `wanted` accepts it; `why` tells more when it does not in time.

    Raises:
        DevClusterError: not within `seconds`.
    """
    last: NodeState | None = None

    def look() -> NodeState | None:
        nonlocal last
        node = api.get(f"{NODES}/{name}")
        last = node_state(node) if node is not None else None
        return last if last is not None and wanted(last) else None

    trying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: found is None),
        wait=tenacity.wait_fixed(0.1),
        stop=tenacity.stop_after_delay(seconds),
    )
    try:
        found = trying(look)
    except tenacity.RetryError as error:
        details = f"Last seen: {last or 'no Node object'}\n{why()}"
        raise DevClusterError(f"node {name} is not {what} after {seconds:g} s", details=details) from error
    if found is None:
        raise AssertionError("tenacity returned a result that is to be retried")
    return found
