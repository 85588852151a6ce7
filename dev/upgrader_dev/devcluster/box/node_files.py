"""The settings of a node with a real kubelet: containerd, CNI, kubelet. Paths are those inside the node."""

from collections.abc import Mapping, Sequence

import msgspec

from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.spec import Taint

HOME = "/var/lib/box"
"""The node's own programs and settings; its kubelet is HOME/bin/kubelet, replaced by an atomic rename."""
DROP_INS = f"{HOME}/kubelet.d"
"""What a node upgrade adds to the kubelet's configuration; it survives a reboot."""
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
  # without CAP_SYS_RESOURCE nobody may lower oom_score_adj, and no sandbox would start
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
    """hosts.toml: plain http for exactly the cluster's registry."""
    return _HOSTS.format(registry=registry).encode()


def pod_network(addresses: Addresses, index: int) -> bytes:
    """A bridge with the node's own pod subnet; routes between nodes are set at power-on, so nothing is masqueraded."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": addresses.pods(index)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugin = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    return msgspec.json.encode({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})


def of_node(
    pki: Credentials, addresses: Addresses, name: str, index: int, *, fast: bool, taints: Sequence[Taint] = ()
) -> dict[str, bytes]:
    """What each real node has below HOME, contents by path; its certificate is made here."""
    user = f"node-{name}"
    pki.make(user, f"system:node:{name}", ["system:nodes"], [f"IP:{addresses.node(index)}", f"DNS:{name}"])
    return {
        "ca.crt": pki.ca.read_bytes(),
        "node.crt": pki.path(f"{user}.crt").read_bytes(),
        "node.key": pki.path(f"{user}.key").read_bytes(),
        "node.kubeconfig": pki.kubeconfig(user).read_bytes(),
        "kubelet.yaml": kubelet_config(fast=fast, taints=taints),
        f"{DROP_INS.removeprefix(f'{HOME}/')}/README": _DROP_INS,  # the kubelet does not start without the folder
        "cni/10-pods.conflist": pod_network(addresses, index),
        f"certs.d/{addresses.registry}/hosts.toml": registry_hosts(addresses.registry),
    }


def kubelet_words(address: str, labels: Mapping[str, str], *flags: str) -> tuple[str, ...]:
    """What a kubelet is started with, after its own name."""
    own = ",".join(f"{key}={value}" for key, value in labels.items() if kubelet_may_set(key))
    return (
        f"--kubeconfig={HOME}/node.kubeconfig",
        f"--config={HOME}/kubelet.yaml",
        f"--config-dir={DROP_INS}",
        f"--node-ip={address}",
        *flags,
        *((f"--node-labels={own}",) if own else ()),
        "--v=2",
    )


def kubelet_may_set(label: str) -> bool:
    """Whether a kubelet may give itself a label; the others are set by us."""
    domain = label.rpartition("/")[0]
    return not any(domain == barred or domain.endswith(f".{barred}") for barred in _BARRED_DOMAINS)


def kubelet_config(*, fast: bool, taints: Sequence[Taint] = ()) -> bytes:
    """KubeletConfiguration; JSON is YAML."""
    settings: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failSwapOn": False,
        "failCgroupV1": False,  # from 1.35 on the default refuses cgroup v1
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
        "resolvConf": "",  # no DNS: look-ups in pods fail at once instead of timing out
        "volumePluginDir": f"{HOME}/volume-plugins",  # the usual one is outside the node's own disk
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        # The disk is the machine's, and others fill it: a kubelet that made room on it threw the sandboxes' image away
        # (containerd 1.6 does not say that it is needed), and no pod started on that node any more.
        "imageGCHighThresholdPercent": 100,
        "registerWithTaints": [msgspec.to_builtins(one) for one in taints],
    }
    if fast:
        settings |= {
            "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "10s",  # a change is told at once; written each second it kept everybody busy
            "nodeLeaseDurationSeconds": 4,
        }
    return msgspec.json.encode(settings)
