"""The settings of etcd, API server, controller manager, scheduler, registry and kwok, and the plan of their box."""

from pathlib import Path

import msgspec

from upgrader.process.places import Progress, write_atomically
from upgrader.process.supervise import SupervisedProgram
from upgrader_dev.devcluster.base import network, plan, versions
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.binaries import find_program
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.plan import BootStage, Plan, Ready
from upgrader_dev.devcluster.control_plane import kwok_stages

FOLDER = "cp"
KWOK_LABEL = "devcluster.gpu-upgrader.io/powered"
"""kwok manages only nodes with this label and the value "kwok"; without a selector it would manage real nodes too."""

_FAST_MONITOR = ("--node-monitor-period=1s", "--node-monitor-grace-period=6s", "--node-startup-grace-period=20s")

_AUDIT_RULES: tuple[dict[str, object], ...] = (
    {"level": "None", "verbs": ["get", "list", "watch"]},
    {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
    # heartbeats: several writes per second, which are never of interest here
    {
        "level": "None",
        "userGroups": ["system:nodes"],
        "resources": [{"resources": ["nodes/status", "pods/status"]}],
    },
    {"level": "None", "users": ["devcluster:kwok"], "resources": [{"resources": ["nodes/status", "pods/status"]}]},
    # the name of a created object is only in the body, and so is the subject of an Event
    {
        "level": "Request",
        "verbs": ["create"],
        "resources": [
            {"group": "", "resources": ["pods", "events"]},
            {"group": "batch", "resources": ["jobs"]},
            {"group": "gpu-upgrader.io", "resources": ["nodeupgrades"]},
        ],
    },
    {"level": "Metadata"},
)


class ControlPlane:
    """The programs of a cluster's control plane, in the folder `cp` of the cluster."""

    def __init__(
        self, folder: Path, addresses: Addresses, pki: Credentials, *, fast: bool, audit_reads_of: str = ""
    ) -> None:
        self._folder = folder / FOLDER
        self._addresses = addresses
        self._pki = pki
        self._fast = fast
        self._audit_reads_of = audit_reads_of

    @property
    def audit_log(self) -> Path:
        """JSON lines, level Metadata, no reads, no leases, no heartbeats."""
        return self._folder / "audit.log"

    def log(self, name: str) -> Path:
        """The log file of a program."""
        return self._folder / f"{name}.log"

    def hold_file(self, name: str) -> Path:
        """While this file exists, the program is not restarted."""
        return self._folder / "holds" / name

    def write_files(self, progress: Progress) -> None:
        """Write certificates, settings, and the plan for process 1."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_credentials()
        write_atomically(self._folder / "audit-policy.yaml", msgspec.json.encode(_audit_policy(self._audit_reads_of)))
        write_atomically(self._folder / "kwok.yaml", kwok_stages.make_stages())
        write_atomically(self._folder / "registry.yaml", msgspec.json.encode(self._registry_settings()))
        network_setup = network.interface_commands(self._addresses, network.CONTROL_PLANE_LAST)
        first = BootStage(
            programs=(self._registry(progress), self._etcd(progress), self._api_server(progress)),
            ready=Ready(
                kind="https",
                address=f"https://127.0.0.1:{self._addresses.api_port}/readyz",
                ca=str(self._pki.ca),
                certificate=str(self._pki.path("admin.crt")),
                key=str(self._pki.path("admin.key")),
            ),
        )
        second = BootStage(
            programs=(self._controller_manager(progress), self._scheduler(progress), self._kwok(progress))
        )
        plan.write_plan(
            self._folder,
            Plan(
                hostname="cp",
                holds=str(self._folder / "holds"),
                journal=str(self._folder / "starts.log"),
                stages=(first, second),
                network=network_setup if self._addresses.namespaced else "",
            ),
        )

    def _make_credentials(self) -> None:
        pki, addresses = self._pki, self._addresses
        addresses_of_service = [
            f"IP:{address}" for address in (addresses.control_plane, addresses.kubernetes_service, "127.0.0.1")
        ]
        dns_names = ["DNS:kubernetes", "DNS:kubernetes.default.svc", "DNS:localhost"]
        pki.make_certificate("apiserver", "kube-apiserver", names=[*dict.fromkeys(addresses_of_service), *dns_names])
        pki.make_certificate("kubelet-client", "apiserver-kubelet-client", ["system:masters"])
        pki.make_certificate("admin", "admin", ["system:masters"])
        pki.make_certificate("controller-manager", "system:kube-controller-manager")
        pki.make_certificate("scheduler", "system:kube-scheduler")
        pki.make_certificate("kwok", "devcluster:kwok", ["system:masters"])
        for user in ("admin", "controller-manager", "scheduler", "kwok"):
            pki.write_kubeconfig(user)

    def _registry_settings(self) -> dict[str, object]:
        host = "" if self._addresses.namespaced else "127.0.0.1"
        return {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(self._folder / "registry")},
                "delete": {"enabled": True},
            },
            "http": {"addr": f"{host}:{self._addresses.registry_port}"},
        }

    def _registry(self, progress: Progress) -> SupervisedProgram:
        words = [str(find_program(versions.OCI_REGISTRY, progress)), "serve", str(self._folder / "registry.yaml")]
        # without the variable it tries to reach a trace collector without end
        return self._program("registry", words, {"OTEL_TRACES_EXPORTER": "none"})

    def _etcd(self, progress: Progress) -> SupervisedProgram:
        client = f"http://127.0.0.1:{self._addresses.etcd_port}"
        peer = f"http://127.0.0.1:{self._addresses.etcd_peer_port}"
        words = [
            str(find_program(versions.ETCD_SERVER, progress)),
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",  # the machine does not crash; a killed process loses nothing
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        ]
        return self._program("etcd", words)

    def _api_server(self, progress: Progress) -> SupervisedProgram:
        pki, addresses = self._pki, self._addresses
        words = [
            str(find_program(versions.KUBE_APISERVER, progress)),
            f"--etcd-servers=http://127.0.0.1:{addresses.etcd_port}",
            f"--secure-port={addresses.api_port}",
            f"--tls-cert-file={pki.path('apiserver.crt')}",
            f"--tls-private-key-file={pki.path('apiserver.key')}",
            f"--client-ca-file={pki.ca}",
            f"--kubelet-client-certificate={pki.path('kubelet-client.crt')}",
            f"--kubelet-client-key={pki.path('kubelet-client.key')}",
            f"--kubelet-certificate-authority={pki.ca}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki.path('sa.pub')}",
            f"--service-account-signing-key-file={pki.path('sa.key')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            # the second adds a toleration for a taint with the resource name to GPU pods, see docs/concepts/stacks.md
            "--enable-admission-plugins=NodeRestriction,ExtendedResourceToleration",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={addresses.services}",
            f"--audit-policy-file={self._folder / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
        ]
        if addresses.namespaced:
            # it listens on all addresses of its namespace, including the service's: that one requires no kube-proxy
            words.append(f"--advertise-address={addresses.control_plane}")
        else:
            words += ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
        return self._program("kube-apiserver", words)

    def _controller_manager(self, progress: Progress) -> SupervisedProgram:
        # at the default of 20 requests per second, the client itself throttles taints, evictions and Job pods
        words = [
            str(find_program(versions.KUBE_CONTROLLER_MANAGER, progress)),
            *self._login("controller-manager"),
            f"--secure-port={self._addresses.controller_manager_port}",
            f"--service-account-private-key-file={self._pki.path('sa.key')}",
            f"--root-ca-file={self._pki.ca}",
            "--use-service-account-credentials",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            *(_FAST_MONITOR if self._fast else ()),
        ]
        return self._program("kube-controller-manager", words)

    def _scheduler(self, progress: Progress) -> SupervisedProgram:
        words = [
            str(find_program(versions.KUBE_SCHEDULER, progress)),
            *self._login("scheduler"),
            f"--secure-port={self._addresses.scheduler_port}",
        ]
        return self._program("kube-scheduler", words)

    def _kwok(self, progress: Progress) -> SupervisedProgram:
        words = [
            str(find_program(versions.KWOK_CONTROLLER, progress)),
            f"--kubeconfig={self._pki.path('kwok.kubeconfig')}",
            f"--config={self._folder / 'kwok.yaml'}",
            f"--node-ip={self._addresses.control_plane}",
            # a lease is renewed after a quarter of its duration, which must be well within the grace period (6 or 40 s)
            f"--node-lease-duration-seconds={12 if self._fast else 40}",
            f"--manage-nodes-with-label-selector={KWOK_LABEL}=kwok",
        ]
        return self._program("kwok", words)

    def _login(self, user: str) -> list[str]:
        path = self._pki.path(f"{user}.kubeconfig")
        flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [*(f"--{flag}={path}" for flag in flags), "--leader-elect=false", "--bind-address=127.0.0.1"]

    def _program(self, name: str, words: list[str], env: dict[str, str] | None = None) -> SupervisedProgram:
        # a proxy of the machine is not reachable inside; files in HOME are deleted with the cluster
        return SupervisedProgram(
            name=name,
            words=tuple(words),
            log=str(self.log(name)),
            env={"HOME": str(self._folder), "NO_PROXY": "*", **(env or {})},
        )


def _audit_policy(reads_of: str) -> dict[str, object]:
    reads = {"level": "Metadata", "userGroups": [reads_of], "verbs": ["get", "list", "watch"]}
    leases = {
        "level": "Metadata",
        "userGroups": [reads_of],
        "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
    }
    rules = (reads, leases, *_AUDIT_RULES) if reads_of else _AUDIT_RULES
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
