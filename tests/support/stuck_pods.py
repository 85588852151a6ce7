"""Pods of the simulated cluster that do not start: their status is silent, and the kubelet tells why in Events."""

from dataclasses import dataclass, field

from upgrader.api import names
from upgrader.api.resources import EVENTS, PODS
from upgrader.core.timing import format_time
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

MAKES = {"waiting": {"reason": "PodInitializing"}}


@dataclass
class StuckPods:
    """Pods of one component; made `rig.others`, it plays their kubelets, second by second."""

    cluster: FakeCluster
    component: str
    nodes: set[str]
    says: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message of each fault, in the order in which they were met."""
    _since: dict[str, str] = field(default_factory=dict)

    def __call__(self) -> None:
        for pod in self.cluster.store.copy_all(PODS):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if meta.get("labels", {}).get(names.LABEL_COMPONENT) == self.component and node in self.nodes:
                statuses = {
                    f"{kind}Statuses": [
                        {"name": one["name"], "state": MAKES, "ready": False} for one in pod["spec"].get(f"{kind}s", [])
                    ]
                    for kind in ("initContainer", "container")
                }
                since = self._since.setdefault(meta["uid"], format_time(self.cluster.clock.now()))
                silent = {"phase": "Pending", "startTime": since, "conditions": [], **statuses}
                self.cluster.store.change(PODS, meta["name"], {"status": silent}, meta["namespace"])
                self._tell(meta)

    def _tell(self, pod: dict) -> None:
        """Each fault is one Event, told once more whenever it is met again."""
        for number, (reason, message) in enumerate(self.says):
            name = f"{pod['name']}.{number}"
            if self.cluster.store.find(EVENTS, name, pod["namespace"]) is None:
                regarding = {"kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
                body = {"involvedObject": regarding, "type": "Warning", "reason": reason, "message": message}
                self.cluster.store.put(
                    EVENTS, {"metadata": {"name": name, "namespace": pod["namespace"]}, "count": 0, **body}
                )
            count = self.cluster.store.find(EVENTS, name, pod["namespace"])["count"]
            # Told in turn, as a kubelet does that tries one volume after the other.
            if count // 30 % len(self.says) == number or not count:
                again = {"lastTimestamp": format_time(self.cluster.clock.now())}
                self.cluster.store.change(EVENTS, name, again, pod["namespace"])
            self.cluster.store.change(EVENTS, name, {"count": count + 1}, pod["namespace"])


@dataclass
class RefusedPods:
    """Pods of one component that the API server does not let their DaemonSet or Job make; played as StuckPods are."""

    cluster: FakeCluster
    component: str
    nodes: set[str]
    says: str
    """In the API server's words; `{}` is the name of the pod, another one with each try. Empty: nobody even tries."""
    _tries: int = 0

    def __call__(self) -> None:
        for pod in self.cluster.store.copy_all(PODS):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            owner = next(iter(meta.get("ownerReferences", [])), None)
            if meta.get("labels", {}).get(names.LABEL_COMPONENT) == self.component and node in self.nodes and owner:
                self.cluster.store.remove(PODS, meta["name"], meta["namespace"])
                if not self.says:
                    continue
                self._tries += 1
                made = f"{owner['name']}-"[:58] + f"{self._tries:05x}"
                body = {
                    "metadata": {"name": f"{owner['name']}.{self._tries}", "namespace": meta["namespace"]},
                    "involvedObject": {"kind": owner["kind"], "name": owner["name"], "uid": owner["uid"]},
                    "type": "Warning",
                    "reason": "FailedCreate",
                    "message": f"Error creating: {self.says.format(made)}",
                }
                self.cluster.store.put(EVENTS, body)
