"""Nodes that are API objects only: kwok maintains their leases, their status and the phases of their pods."""

import concurrent.futures
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import tenacity

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base import nodes, record
from upgrader_dev.devcluster.base.api import NODES, ApiServer, Object
from upgrader_dev.devcluster.base.nodes import READY_SECONDS, ReportedNodeState
from upgrader_dev.devcluster.base.spec import KwokSpec
from upgrader_dev.devcluster.control_plane.control_plane import KWOK_LABEL

_PARALLEL_REQUESTS = 8
_MANAGED, _OFF, _CUT = "kwok", "off", "cut"


class KwokNode:
    """A kwok node. Without a kubelet, commands, exec and logs are not possible."""

    sort: Literal["kwok"] = "kwok"

    def __init__(self, folder: Path, name: str, api: ApiServer) -> None:
        self._cluster = folder
        self._api = api
        self.name = name

    def power_off(self) -> None:
        """Take it from kwok: no lease is renewed, and its pods remain unchanged."""
        self._set_label(_OFF)

    def power_on(self) -> None:
        """Give it to kwok again, with a new boot id; until then it is not Ready."""
        current = record.read_record(self._cluster)
        spec = current.find_kwok(self.name)
        manifest = node_object(
            msgspec.structs.replace(spec, kernel=current.kwok_kernels.get(self.name) or spec.kernel), self.name
        )
        if self._api.create(NODES, manifest) is None:
            booting = [{"type": "Ready", "status": "False", "reason": "Booting", "message": "powered on"}]
            changes = {"status": {"nodeInfo": manifest["status"]["nodeInfo"], "conditions": booting}}
            self._api.patch(f"{NODES}/{self.name}/status", changes)
            self._set_label(_MANAGED)

    def cut(self) -> None:
        """As power_off for the API; join restores the same boot."""
        self._set_label(_CUT)

    def join(self) -> None:
        """Give it to kwok again."""
        self._set_label(_MANAGED)

    def set_kernel(self, kernel: str) -> None:
        """Simulated: the kernel name from the next power-on."""
        with record.change_record(self._cluster) as holder:
            holder[0].find_kwok(self.name)
            kernels = {**holder[0].kwok_kernels, self.name: kernel}
            holder[0] = msgspec.structs.replace(holder[0], kwok_kernels=kernels)

    def wait_ready(self, seconds: float = READY_SECONDS) -> ReportedNodeState:
        """Wait until kwok has made it Ready."""
        return nodes.wait_for_node(
            self._api, self.name, lambda state: state.ready == "True", seconds, "Ready", _no_reason
        )

    def wait_not_ready(self, seconds: float = READY_SECONDS) -> ReportedNodeState:
        """Wait until the node controller marks it not ready."""
        return nodes.wait_for_node(
            self._api, self.name, lambda state: state.ready != "True", seconds, "silent", _no_reason
        )

    def _set_label(self, value: str) -> None:
        self._api.patch(f"{NODES}/{self.name}", {"metadata": {"labels": {KWOK_LABEL: value}}})


def create_nodes(api: ApiServer, spec: KwokSpec) -> None:
    """Create the Node objects, several at a time; existing ones are not changed."""
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        creations = [pool.submit(api.create, NODES, node_object(spec, name)) for name in spec.names()]
        for creation in creations:
            creation.result()


def wait_all(api: ApiServer, names: Sequence[str], seconds: float = READY_SECONDS) -> dict[str, ReportedNodeState]:
    """Wait until all are Ready; each check is one list instead of one request per node."""
    expected = set(names)

    def read_ready_nodes() -> dict[str, ReportedNodeState]:
        listed = (api.get(NODES) or {})["items"] if expected else []
        states = {node["metadata"]["name"]: nodes.node_state(node) for node in listed}
        return {name: states[name] for name in expected & states.keys() if states[name].ready == "True"}

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda ready: ready.keys() != expected),
        wait=tenacity.wait_fixed(0.2),
        stop=tenacity.stop_after_delay(seconds),
    )
    try:
        return retrying(read_ready_nodes)
    except tenacity.RetryError as error:
        late = sorted(expected - read_ready_nodes().keys())
        raise DevClusterError(
            f"{len(late)} of {len(expected)} kwok nodes are not Ready after {seconds:g} s", details=", ".join(late[:10])
        ) from error


def node_object(spec: KwokSpec, name: str) -> Object:
    """A Node as its kubelet registers it."""
    resources = {"cpu": "64", "memory": "1Ti", "pods": "110", **({spec.resource: str(spec.gpus)} if spec.gpus else {})}
    info = {
        "kernelVersion": spec.kernel,
        "kubeletVersion": f"v{spec.kubelet}",
        "bootID": str(uuid.uuid4()),
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
        **spec.labels,
        KWOK_LABEL: _MANAGED,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [msgspec.to_builtins(taint) for taint in spec.taints]},
        "status": {"allocatable": resources, "capacity": resources, "nodeInfo": info},
    }


def _no_reason() -> str:
    return ""
