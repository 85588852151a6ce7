"""The operations of every sort of node, and functions that read and await the state of the Node object."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec
import tenacity
from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base.api import NODES, ApiServer

READY_SECONDS = 120.0


class DevNode(Protocol):
    """A node of any sort. Operations of some sorts only (containers, signals) are methods of their classes."""

    @property
    def name(self) -> str:
        """The name of its Node object."""
        ...

    @property
    def sort(self) -> Literal["box", "kwok", "virtual"]:
        """Which parts of it are real: see docs/contributing/dev-cluster.md."""
        ...

    def power_off(self) -> None:
        """Power off immediately, as when the power cable is pulled; its pods remain in the API."""
        ...

    def power_on(self) -> None:
        """Boot, with a new boot id and the kernel name that was set last. A missing Node object is created."""
        ...

    def cut(self) -> None:
        """Disconnect from the network: the API server receives nothing from it."""
        ...

    def join(self) -> None:
        """Connect to the network again, with the same boot id."""
        ...

    def set_kernel(self, kernel: str) -> None:
        """Set the kernel of the next power-on; empty for the default. Only virtual nodes really boot it."""
        ...

    def wait_ready(self, seconds: float = READY_SECONDS) -> "ReportedNodeState":
        """Wait until it is Ready on its current boot."""
        ...

    def wait_not_ready(self, seconds: float = READY_SECONDS) -> "ReportedNodeState":
        """Wait until the control plane has marked it not ready."""
        ...


class ReportedNodeState(Struct, frozen=True, kw_only=True):
    """The state in a Node object. `ready`: True, False or Unknown."""

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


def node_state(node: dict[str, Any]) -> ReportedNodeState:
    """The state of a Node object."""
    status = msgspec.convert(node.get("status", {}), _Status)
    ready = next((condition.status for condition in status.conditions if condition.type == "Ready"), "Unknown")
    info = status.node_info
    return ReportedNodeState(
        ready=ready,
        boot_id=info.boot_id,
        kernel=info.kernel_version,
        kubelet=info.kubelet_version,
        allocatable=status.allocatable,
    )


def wait_for_node(
    api: ApiServer,
    name: str,
    is_wanted: Callable[[ReportedNodeState], bool],
    seconds: float,
    what: str,
    why: Callable[[], str],
) -> ReportedNodeState:
    """Poll a Node until `wanted` accepts it; `why` adds details to the error.

    Raises:
        DevClusterError: not within `seconds`.
    """
    last_state: ReportedNodeState | None = None

    def read_state() -> ReportedNodeState | None:
        nonlocal last_state
        node = api.get(f"{NODES}/{name}")
        last_state = node_state(node) if node is not None else None
        return last_state if last_state is not None and is_wanted(last_state) else None

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda result: result is None),
        wait=tenacity.wait_fixed(0.1),
        stop=tenacity.stop_after_delay(seconds),
    )
    try:
        state = retrying(read_state)
    except tenacity.RetryError as error:
        details = f"Last state: {last_state or 'no Node object'}\n{why()}"
        raise DevClusterError(f"node {name} is not {what} after {seconds:g} s", details=details) from error
    if state is None:
        raise AssertionError("tenacity returned a result that is to be retried")
    return state
