"""The settings of a node with a real kubelet: containerd, CNI, kubelet. Paths are those inside the node."""

from collections.abc import Mapping, Sequence

import msgspec

from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.spec import NodeTaint

HOME = "/var/lib/box"
"""The programs and settings of the node; its kubelet is HOME/bin/kubelet, replaced by an atomic rename."""
DROP_INS = f"{HOME}/kubelet.d"
"""Additional kubelet configuration of a node upgrade; it survives a reboot."""
CNI_PROGRAMS = "/usr/lib/cni"
PAUSE_IMAGE = "localhost/pause:1"
_DROP_INS = b"Files of this folder whose names end with .conf are read by the kubelet after its kubelet.yaml.\n"
_BARRED_DOMAINS = ("kubernetes.io", "k8s.io")

_CONTAINERD = """\
version = 2
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # without CAP_SYS_RESOURCE oom_score_adj cannot be lowered, and no sandbox would start
  restrict_oom_score_adj = true
  cni = {{bin_dir = "{cni_programs}", conf_dir = "{home}/cni"}}
  registry = {{config_path = "{home}/certs.d"}}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      options = {{SystemdCgroup = false}}
"""

_HOSTS = """\
server = "http://{registry}"
[host."http://{registry}"]
  capabilities = ["pull", "resolve"]
"""


def containerd_config() -> bytes:
    """containerd.toml of a box, for containerd 1.6."""
    return _CONTAINERD.format(pause=PAUSE_IMAGE, cni_programs=CNI_PROGRAMS, home=HOME).encode()


def registry_hosts(registry: str) -> bytes:
    """hosts.toml: plain http for the cluster's registry only."""
    return _HOSTS.format(registry=registry).encode()


def pod_network(addresses: Addresses, index: int) -> bytes:
    """A bridge with the node's pod subnet; routes between nodes are set at power-on, so nothing is masqueraded."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": addresses.pod_subnet(index)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugin = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    return msgspec.json.encode({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})


def render_node_files(
    pki: Credentials, addresses: Addresses, name: str, index: int, *, fast: bool, taints: Sequence[NodeTaint] = ()
) -> dict[str, bytes]:
    """The files of each real node below HOME, contents by path; its certificate is created here."""
    user = f"node-{name}"
    pki.make_certificate(
        user, f"system:node:{name}", ["system:nodes"], [f"IP:{addresses.node_address(index)}", f"DNS:{name}"]
    )
    return {
        "ca.crt": pki.ca.read_bytes(),
        "node.crt": pki.path(f"{user}.crt").read_bytes(),
        "node.key": pki.path(f"{user}.key").read_bytes(),
        "node.kubeconfig": pki.write_kubeconfig(user).read_bytes(),
        "kubelet.yaml": kubelet_config(fast=fast, taints=taints),
        f"{DROP_INS.removeprefix(f'{HOME}/')}/README": _DROP_INS,  # the kubelet does not start without the folder
        "cni/10-pods.conflist": pod_network(addresses, index),
        f"certs.d/{addresses.registry}/hosts.toml": registry_hosts(addresses.registry),
    }


def kubelet_words(address: str, labels: Mapping[str, str], *flags: str) -> tuple[str, ...]:
    """The arguments of a kubelet."""
    node_labels = ",".join(f"{key}={value}" for key, value in labels.items() if kubelet_may_set(key))
    return (
        f"--kubeconfig={HOME}/node.kubeconfig",
        f"--config={HOME}/kubelet.yaml",
        f"--config-dir={DROP_INS}",
        f"--node-ip={address}",
        *flags,
        *((f"--node-labels={node_labels}",) if node_labels else ()),
        "--v=2",
    )


def kubelet_may_set(label: str) -> bool:
    """Whether a kubelet can set a label of its Node; other labels are set by the cluster."""
    domain = label.rpartition("/")[0]
    return not any(domain == barred or domain.endswith(f".{barred}") for barred in _BARRED_DOMAINS)


def kubelet_config(*, fast: bool, taints: Sequence[NodeTaint] = ()) -> bytes:
    """KubeletConfiguration; JSON is YAML."""
    settings: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failSwapOn": False,
        "failCgroupV1": False,  # from 1.35 on the default rejects cgroup v1
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "5s"},
            "x509": {"clientCAFile": f"{HOME}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{HOME}/node.crt",
        "tlsPrivateKeyFile": f"{HOME}/node.key",
        "makeIPTablesUtilChains": False,
        "resolvConf": "",  # no DNS: look-ups in pods fail immediately instead of timing out
        "volumePluginDir": f"{HOME}/volume-plugins",  # the default is outside the node's disk
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        # Other programs fill the machine's disk: a kubelet that frees space removes the image of sandboxes, too
        # (containerd 1.6 does not pin it), and then no pod starts on that node.
        "imageGCHighThresholdPercent": 100,
        "registerWithTaints": [msgspec.to_builtins(taint) for taint in taints],
    }
    if fast:
        settings |= {
            "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "10s",  # changes are reported immediately; each second is too much load
            "nodeLeaseDurationSeconds": 4,
        }
    return msgspec.json.encode(settings)
