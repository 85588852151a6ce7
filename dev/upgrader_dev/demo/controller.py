"""The controller as a process on the host, with its own service account, for the embedded cluster."""

import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from upgrader.controller.probes import SERVING
from upgrader.core.errors import DevClusterError
from upgrader.kube.lease import CONTROLLER
from upgrader.process import daemon
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster import DevCluster

NAMESPACE = "gpu-upgrader-system"
ACCOUNT = "gpu-upgrader"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
_STOP_SECONDS = 20.0


class ControllerProcess:
    """A process of `upgrader controller`."""

    def __init__(
        self, cluster: DevCluster, folder: Path, node_image: str, name: str = "controller", *, server: str = ""
    ) -> None:
        """`server`: the address of the API server, if it is not the cluster's (a proxy)."""
        self._cluster = cluster
        self._folder = folder
        self._node_image = node_image
        self._server = server
        self.name = name
        self.log = folder / f"{name}.log"
        self.pid = 0

    def start(self, **settings: str) -> None:
        """Start the process; `settings` are additional UPGRADER_ variables, without the prefix."""
        kubeconfig = service_account_kubeconfig(self._cluster, self._folder, self._server)
        if not self.running:
            self._release_lease()
        variables = {
            "UPGRADER_NAMESPACE": NAMESPACE,
            "UPGRADER_NODE_IMAGE": self._node_image,
            "UPGRADER_INSECURE_REGISTRIES": self._cluster.registry,
            "UPGRADER_ACTIVE_SECONDS": "0.5",
            "UPGRADER_IDLE_SECONDS": "3",
            "UPGRADER_NOTICE_SECONDS": "120",  # a slow machine is expected here
            "UPGRADER_IDENTITY": self.name,
        }
        additional = {f"UPGRADER_{key}": value for key, value in settings.items()}
        words: list[str | Path] = [sys.executable, "-m", "upgrader", "--kubeconfig", kubeconfig, "controller"]
        self.pid = daemon.start_daemon(words, log=self.log, env=variables | additional)

    def _release_lease(self) -> None:
        """Release the lease of the previous process, which may have been killed, so that nothing waits for it."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{CONTROLLER}"
        lease = self._cluster.api.get(path) or {}
        holder = lease.get("spec", {}).get("holderIdentity") or ""
        if holder.rpartition("_")[0] == self.name:
            self._cluster.api.patch(path, {"spec": {"holderIdentity": None}})

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return bool(self.pid) and daemon.is_alive(self.pid)

    def last_reconcile(self, kind: str) -> float:
        """Unix time of the last complete reconciliation of this kind, from the metrics; 0 if unknown."""
        address = self._metrics_address()
        if not address:
            return 0.0
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
                text = response.read().decode()
        except (
            urllib.error.URLError
        ):  # the address belongs to the previous process; the current one has not logged its own yet
            return 0.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "upgrader_last_reconcile_timestamp_seconds" and sample.labels["kind"] == kind:
                    return sample.value
        return 0.0

    def _metrics_address(self) -> str:
        """The address of the metrics endpoint, from the log."""
        for line in reversed(self.log.read_text(encoding="utf-8").splitlines()):
            if f'"{SERVING}"' in line:
                fields = msgspec.json.decode(line)
                return f"{fields['host']}:{fields['port']}"
        return ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP, SIGCONT or SIGKILL."""
        if self.running:
            os.kill(self.pid, number)

    def stop(self) -> None:
        """End the process as the deletion of its pod does, and wait."""
        self.signal(signal.SIGTERM)
        self.wait_ended()

    def wait_ended(self, seconds: float = _STOP_SECONDS) -> None:
        """Wait for the end of the process, and collect it, so that its pid is not used again.

        Raises:
            DevClusterError: it still runs.
        """
        if not self.pid:
            return
        if not wait_until_true(lambda: not self.running, seconds=seconds, every=0.05):
            raise DevClusterError(f"the controller (pid {self.pid}) does not end", details=f"See {self.log}.")
        daemon.reap_child(self.pid)
        self.pid = 0


def service_account_kubeconfig(cluster: DevCluster, folder: Path, server: str = "") -> Path:
    """A kubeconfig with a token of the controller's service account, so that the shipped RBAC rules are tested.

    `server`: the address of the API server, if it is not the cluster's.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    response = cluster.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    if response is None:
        raise DevClusterError(f"service account {ACCOUNT} has no token")
    admin = msgspec.yaml.decode(cluster.kubeconfig.read_bytes())
    admin["users"] = [{"name": admin["users"][0]["name"], "user": {"token": response["status"]["token"]}}]
    if server:
        admin["clusters"] = [{"name": admin["clusters"][0]["name"], "cluster": {"server": server}}]
    kubeconfig = folder / "controller.kubeconfig"
    kubeconfig.write_bytes(msgspec.yaml.encode(admin))
    kubeconfig.chmod(0o600)
    return kubeconfig
