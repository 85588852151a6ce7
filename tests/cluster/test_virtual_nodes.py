"""What is real in a virtual node: all of it, the kernel too. It boots, reboots, hangs and loses its power alone."""

import os
import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.leftovers import left, machine, marked, running
from tests.support.leftovers import until as comes
from tests.support.plain_pods import PlainPods, until
from upgrader.core.errors import DevClusterError
from upgrader.images.boot import tsc
from upgrader.process import ProgramFailedError, ProgramTimeoutError
from upgrader.process.daemon import is_alive, reap_child, start_daemon
from upgrader_dev.devcluster import BoxSpec, ClusterSpec, VmSpec, cluster_status, delete_cluster, start_cluster

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

LABELS = {"pool": "a", "node.kubernetes.io/sort": "vm"}
VMS = (VmSpec(name="vm-a", labels=LABELS), VmSpec(name="vm-b", kubelet="1.35.4"))
SEES_HOST = {"securityContext": {"privileged": True}}


@pytest.fixture(scope="module")
def cluster(start_cluster):
    """A box and two virtual nodes, with different kubelets."""
    return start_cluster("vm", boxes=(BoxSpec(name="gpu-a"),), vms=VMS)


@pytest.fixture
def node(cluster):
    """One virtual node; a test leaves it Ready."""
    return cluster.virtual_node("vm-a")


@pytest.fixture
def pods(cluster):
    made = PlainPods(cluster)
    yield made
    made.delete_all()


def other_kernel(node):
    return next(one for one in node.kernels if one != node.state().kernel)


def test_each_is_a_node_of_its_own_kernel_and_kubelet(cluster):
    states = {name: cluster.virtual_node(name).wait_ready() for name in ("vm-a", "vm-b")}

    assert {name: state.kubelet for name, state in states.items()} == {"vm-a": "v1.34.4", "vm-b": "v1.35.4"}
    assert {state.kernel for state in states.values()} == {cluster.virtual_node("vm-a").kernels[-1]}
    assert len({state.boot_id for state in states.values()}) == 2
    assert states["vm-a"].kernel != os.uname().release
    labels = cluster.api.get("/api/v1/nodes/vm-a")["metadata"]["labels"]
    assert LABELS.items() <= labels.items()


def test_their_clocks_run_as_fast_as_this_machines(node):
    def looked():
        before = time.monotonic()
        told = float(node.enter("cat", "/proc/uptime").text.split()[0])
        return before, told, time.monotonic()

    rates = [one for one in node.enter("cat", "/proc/cmdline").text.split() if one.startswith("tsc_early_khz=")]
    first = looked()
    node.enter("sleep", "3")
    second = looked()

    passed = second[1] - first[1]
    assert (second[0] - first[2]) * 0.98 <= passed <= (second[2] - first[0]) * 1.02
    emulated = "QEMU TCG" in node.enter("cat", "/proc/cpuinfo").text
    assert len(rates) == emulated  # a kernel that measures it by itself is wrong now and then
    assert all(abs(int(rate.partition("=")[2]) - tsc.measure_khz()) < tsc.measure_khz() / 1000 for rate in rates)


def test_pods_of_virtual_nodes_and_boxes_reach_each_other_as_themselves(cluster, pods):
    nodes = ("vm-a", "vm-b", "gpu-a")
    served = "while :; do /bin/busybox nc -l -p 8080 -e /bin/busybox sh -c 'echo $NODE'; done"
    ips = {}
    for name in nodes:
        started = pods.start(f"on-{name}", name, served, container={"env": [{"name": "NODE", "value": name}]})
        ips[name] = started["status"]["podIP"]
    service = cluster.addresses.kubernetes_service
    ask = "until /bin/busybox nc -w 5 {} 8080 </dev/null; do /bin/busybox sleep 0.2; done"
    for name in nodes:
        asked = "; ".join(ask.format(ips[other]) for other in nodes if other != name)
        pods.start(f"asks-{name}", name, f"{asked}; /bin/busybox nc -w 5 {service} 443 </dev/null && echo open")

    for name in nodes:
        expected = "".join(f"{other}\n" for other in nodes if other != name) + "open\n"
        assert pods.ended(f"asks-{name}") == (0, expected)


def test_all_nodes_share_one_directory(cluster, pods):
    mounted = {
        "container": {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        "volumes": [{"name": "shared", "hostPath": {"path": "/var/lib/shared"}}],
    }
    pods.start("writes", "vm-a", "echo kept > /shared/vm-note", **mounted)
    assert pods.ended("writes")[0] == 0

    for name in ("gpu-a", "vm-b"):
        pods.start(f"reads-{name}", name, "/bin/busybox cat /shared/vm-note", **mounted)
        assert pods.ended(f"reads-{name}") == (0, "kept\n")
    assert (cluster.shared / "vm-note").read_text() == "kept\n"


def test_containerd_takes_devices_by_their_cdi_names(node):
    running = tomllib.loads(node.enter("containerd", "--config", "/var/lib/box/containerd.toml", "config", "dump").text)

    runtime = running["plugins"]["io.containerd.cri.v1.runtime"]
    assert (runtime["enable_cdi"], runtime["cdi_spec_dirs"]) == (True, ["/etc/cdi", "/var/run/cdi"])


def test_a_program_on_the_node_tells_its_exit_code_output_and_errors(node):
    ended = node.enter("sh", "-c", "cat; echo wrong >&2; exit 3", stdin=b"right", check=False)

    assert (ended.code, ended.stdout, ended.stderr) == (3, b"right", b"wrong\n")
    with pytest.raises(ProgramFailedError, match="ended with exit code 3"):
        node.enter("sh", "-c", "exit 3")
    with pytest.raises(ProgramTimeoutError, match="did not end within 1 s"):
        node.enter("sleep", "4242", seconds=1)
    until(lambda: "sleep 4242" not in node.enter("ps", "-o", "args").text)


def test_an_orderly_restart_into_the_other_kernel_and_back(node, pods):
    pods.start("stays", "vm-a", "/bin/busybox uname -r; exec /bin/busybox sleep 1000", restartPolicy="Always")
    first = node.wait_ready()

    for times in (1, 2):
        before, wanted = node.state(), other_kernel(node)
        node.restart(wanted)
        after = node.wait_ready()
        assert (after.kernel, after.ready) == (wanted, "True")
        assert after.boot_id != before.boot_id
        until(lambda times=times: pods.restarts("stays") >= times)

    assert node.state().kernel == first.kernel
    said = node.log("console").read_text(errors="replace")
    assert said.count("node: stopped") >= 2
    assert all(f"vm-a boots {kernel}" in said for kernel in node.kernels)


def test_a_pod_reboots_its_node_into_another_kernel_as_on_any_debian_machine(node, pods):
    before, wanted = node.wait_ready(), other_kernel(node)
    order = f"grub-set-default gnulinux-{wanted} && sync && reboot"

    pods.start(
        "reboots",
        "vm-a",
        f"exec /bin/busybox nsenter -t 1 -m -u -i -n -p -- sh -c '{order}'",
        hostPID=True,
        container=SEES_HOST,
    )

    state = until(node.state, lambda state: state.boot_id != before.boot_id and state.ready == "True")
    assert state.kernel == wanted
    assert node.wait_ready().boot_id == state.boot_id


def test_a_kernel_that_panics_boots_anew_and_says_on_the_console_where_it_was(node):
    before = node.wait_ready()

    node.enter("sh", "-c", "(sleep 0.2; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &")

    state = until(node.state, lambda state: state.boot_id != before.boot_id and state.ready == "True")
    assert node.wait_ready() == state
    said = node.log("console").read_text(errors="replace")
    assert "Kernel panic - not syncing: sysrq triggered crash" in said
    assert "sysrq_handle_crash" in said.partition("Call Trace:")[2]


def test_what_was_synced_survives_the_power_and_nothing_else_need(node, pods):
    pods.start("stays", "vm-a", "exec /bin/busybox sleep 1000", restartPolicy="Always")
    before = node.wait_ready()
    node.enter("sh", "-c", "echo kept >/root/note && sync")

    node.power_off()
    off = node.running
    node.power_on()

    after = node.wait_ready()
    assert off is False
    assert (after.kernel, after.boot_id != before.boot_id) == (before.kernel, True)
    assert node.enter("cat", "/root/note").text == "kept"
    until(lambda: pods.restarts("stays") >= 1)


def test_a_kernel_that_is_set_is_booted_at_the_next_power_on_and_no_later_reboot_undoes_it(node):
    wanted = other_kernel(node)
    with pytest.raises(DevClusterError, match=r"has no kernel 1\.2\.3"):
        node.set_kernel("1.2.3")
    node.set_kernel(wanted)
    node.power_off()
    node.power_on()

    assert node.wait_ready().kernel == wanted
    node.restart(other_kernel(node))
    after = node.wait_ready().kernel
    node.restart()
    assert node.wait_ready().kernel == after != wanted


def test_a_machine_that_hangs_is_silent_until_it_goes_on(node):
    before = node.wait_ready()

    node.pause()
    node.wait_not_ready()
    node.resume()

    assert node.wait_ready().boot_id == before.boot_id


def test_a_cable_that_is_cut(cluster, node):
    before = node.wait_ready()

    node.cut()
    node.wait_not_ready()
    powers = cluster_status(cluster.name).vms
    node.join()

    assert node.wait_ready().boot_id == before.boot_id
    assert powers == {"vm-a": "cut", "vm-b": "on"}
    assert cluster_status(cluster.name).vms == {"vm-a": "on", "vm-b": "on"}


def test_a_node_that_is_off_says_so(cluster):
    node = cluster.virtual_node("vm-b")
    node.power_off()
    with pytest.raises(DevClusterError, match="is off"):
        node.wait_ready(seconds=5)
    assert cluster_status(cluster.name).vms["vm-b"] == "off"
    node.power_on()
    with pytest.raises(DevClusterError, match="is on already"):
        node.power_on()
    node.wait_ready()


def test_down_leaves_nothing_of_virtual_nodes(mark, name):
    before = machine()
    cluster = start_cluster(ClusterSpec(name=name, boxes=0, vms=1), print)
    cluster.virtual_node("vm-a").pause()
    tap = cluster.addresses.cable_name(cluster.addresses.last_octet(1))
    cluster.close()
    seen = running(mark)
    assert tap in machine().links
    assert len(seen.pids) > 5

    delete_cluster(name)

    comes(lambda: not left(before, seen, mark), lambda: left(before, seen, mark))
    assert not cluster.folder.exists()


def test_what_a_killed_up_has_started_is_found_and_removed(mark, name):
    before = machine()
    code = f"from upgrader_dev.devcluster import *; start_cluster(ClusterSpec(name={name!r}, boxes=0, vms=2), print)"
    starter = start_daemon([sys.executable, "-c", code], log=Path(os.devnull))
    comes(lambda: any("qemu" in _program(pid) for pid in marked(mark)))
    os.kill(starter, signal.SIGKILL)
    reap_child(starter)
    seen = running(mark)

    delete_cluster(name)

    comes(lambda: not left(before, seen, mark), lambda: left(before, seen, mark))
    assert not any(is_alive(pid) for pid in seen.pids)


def _program(pid):
    try:
        return (Path("/proc") / str(pid) / "comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
