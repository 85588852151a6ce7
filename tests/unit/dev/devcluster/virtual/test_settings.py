import tomllib

import msgspec
import pytest

from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.record import ClusterRecord, VmRecord
from upgrader_dev.devcluster.virtual import settings

VM = VmRecord(
    name="vm-a",
    index=2,
    kubelet="1.35.4",
    image="/image",
    kernels=("6.1.0-47-amd64", "6.1.0-50-amd64"),
    labels={"pool": "a", "kubernetes.io/x": "y"},
    memory_mib=1024,
)
FOUND = ClusterRecord(name="dev", token="t", addresses=Addresses(octet=70), fast=True, created="", vms=(VM,))  # noqa: S106


@pytest.fixture
def pki(tmp_path):
    made = Credentials(tmp_path / "pki", FOUND.addresses)
    made.make_authority("dev")
    return made


def test_containerd_serves_cdi_and_pulls_from_the_clusters_registry_only():
    read = tomllib.loads(settings.containerd_config().decode())["plugins"]

    runtime = read["io.containerd.cri.v1.runtime"]
    assert (runtime["enable_cdi"], runtime["cdi_spec_dirs"]) == (True, ["/etc/cdi", "/var/run/cdi"])
    assert read["io.containerd.cri.v1.images"]["registry"] == {"config_path": "/var/lib/box/certs.d"}


@pytest.mark.parametrize(("init", "by_systemd"), [("busybox", False), ("systemd", True)])
def test_systemd_creates_the_control_groups_of_pods_where_it_is_the_first_process(pki, init, by_systemd):
    made = settings.seed_files(FOUND, msgspec.structs.replace(VM, init=init), pki)["containerd.toml"].decode()
    runtimes = tomllib.loads(made)["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert runtimes["runc"]["options"] == {"SystemdCgroup": by_systemd}


def test_a_node_has_what_is_its_own(pki):
    made = settings.seed_files(FOUND, VM, pki)

    assert made["hostname"] == b"vm-a\n"
    assert made["kubelet-version"] == b"1.35.4\n"
    assert made["kubelet-words"].decode().splitlines() == [
        "--kubeconfig=/var/lib/box/node.kubeconfig",
        "--config=/var/lib/box/kubelet.yaml",
        "--config-dir=/var/lib/box/kubelet.d",
        "--node-ip=10.70.0.12",
        "--node-labels=pool=a",
        "--v=2",
    ]
    assert "addr add 10.70.0.12/24 dev eth0" in made["network"].decode().splitlines()
    assert not {"order.cfg", "images-disk"} & set(made)


def test_a_kernel_that_was_ordered_is_named_to_grub(pki):
    ordered = msgspec.structs.replace(VM, kernel="6.1.0-47-amd64", order="1")

    assert settings.seed_files(FOUND, ordered, pki)["order.cfg"] == b"set order=1\nset wanted=gnulinux-6.1.0-47-amd64\n"


def test_a_node_knows_of_its_disk_with_container_images(pki):
    made = settings.seed_files(FOUND, msgspec.structs.replace(VM, container_images="/images"), pki)

    assert made["images-disk"] == b"/dev/vdc\n"
