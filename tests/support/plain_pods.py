"""Pods of a shell line each on the embedded cluster's real nodes, from the image that every one of them has."""

from collections.abc import Callable
from typing import Any

import tenacity

from upgrader_dev.devcluster import DevCluster

PODS = "/api/v1/namespaces/default/pods"
BUSYBOX = ("/bin/busybox", "sh", "-c")
IMAGE = "localhost/pause:1"


class PlainPods:
    """Those that one test made."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._made: list[str] = []

    def start(self, name: str, node: str, line: str, **spec: Any) -> dict[str, Any]:
        """Run a shell line in a pod on a node; the Pod object once it runs or has ended."""
        meta = {"name": name, "annotations": spec.pop("annotations", {})}
        container = {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": [*BUSYBOX, line]}
        container |= spec.pop("container", {})
        wanted = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
        self._made.append(name)
        self._cluster.api.create(PODS, {"metadata": meta, "spec": {**wanted, "containers": [container]}})
        return until(lambda: self.get(name), lambda pod: pod["status"]["phase"] not in {"Pending", "Unknown"})

    def get(self, name: str) -> dict[str, Any]:
        """The Pod object."""
        return self._cluster.api.get(f"{PODS}/{name}") or {}

    def ended(self, name: str) -> tuple[int, str]:
        """Exit code and output of a pod that runs to its end."""
        pod = until(lambda: self.get(name), lambda pod: pod["status"]["phase"] in {"Succeeded", "Failed"})
        code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        return code, self._cluster.api.read_text(f"{PODS}/{name}/log")

    def restarts(self, name: str) -> int:
        """How often the container of a pod that runs was started anew; -1 while it does not run."""
        statuses = self.get(name)["status"].get("containerStatuses", [])
        return statuses[0]["restartCount"] if statuses and statuses[0]["ready"] else -1

    def delete_all(self) -> None:
        """Take them away at once."""
        for name in self._made:
            self._cluster.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def until(look: Callable[[], Any], wanted: Callable[[Any], bool] = bool, seconds: float = 240) -> Any:
    """What `look` gives as soon as it is something that `wanted` accepts."""
    retry = tenacity.retry_if_result(lambda found: not found or not wanted(found))
    return tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.05), stop=tenacity.stop_after_delay(seconds))(look)
