"""The settings of one virtual node, for its second disk: kernel, name, network, keys, containerd, kubelet."""

from upgrader_dev.devcluster.base import network
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.record import ClusterRecord, VmRecord
from upgrader_dev.devcluster.box import node_files
from upgrader_dev.devcluster.box.node_files import CNI_PROGRAMS, HOME, PAUSE_IMAGE
from upgrader_dev.devcluster.virtual import qemu
from upgrader_dev.devcluster.virtual.rootfs import grub_entry

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")

_CONTAINERD = f"""\
version = 3
oom_score = -999
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile", \
"io.containerd.snapshotter.v1.erofs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  pinned_images = {{sandbox = "{PAUSE_IMAGE}"}}
  registry = {{config_path = "{HOME}/certs.d"}}
[plugins."io.containerd.cri.v1.runtime"]
  # unused statistics: every second, for each container, they required a tenth of a core under emulation
  stats_collect_period = "30s"
  stats_retention_period = "10m"
  enable_cdi = true
  cdi_spec_dirs = {list(CDI_FOLDERS)}
  cni = {{bin_dirs = ["{CNI_PROGRAMS}"], conf_dir = "{HOME}/cni"}}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      options = {{SystemdCgroup = false}}
"""


def seed_files(cluster_record: ClusterRecord, vm: VmRecord, pki: Credentials) -> dict[str, bytes]:
    """Contents by path below HOME."""
    addresses = cluster_record.addresses
    node_settings = node_files.render_node_files(pki, addresses, vm.name, vm.index, fast=cluster_record.fast)
    words = node_files.kubelet_words(addresses.node_address(vm.index), vm.labels)
    images_disk = {"images-disk": b"/dev/vdc\n"} if vm.container_images else {}
    boot_order = {"order.cfg": qemu.boot_order(vm.order, grub_entry(vm.kernel))} if vm.order else {}
    return {
        **node_settings,
        **boot_order,
        **images_disk,
        "containerd.toml": containerd_config(systemd=vm.init == "systemd"),
        "hostname": f"{vm.name}\n".encode(),
        "kubelet-version": f"{vm.kubelet}\n".encode(),
        "kubelet-words": "".join(f"{word}\n" for word in words).encode(),
        "network": network.interface_commands(addresses, addresses.last_octet(vm.index)).encode(),
    }


def containerd_config(*, systemd: bool = False) -> bytes:
    """containerd.toml for containerd 2.3, which supports CDI device names. The kubelet uses its cgroup driver.

    `systemd`: control groups of pods are created by systemd, not by containerd itself.
    """
    return _CONTAINERD.replace("SystemdCgroup = false", f"SystemdCgroup = {str(systemd).lower()}").encode()
