"""The simulated exporter in its pod on a real kubelet, scraped by a real Prometheus; and the look before a job."""

import msgspec
import pytest

from tests.support.pod_network import processes
from tests.support.programs import soon
from tests.support.prometheus import Prometheus
from tests.support.workbench import PLUGIN, RESOURCE
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import GpuStack, GpuStackSpec
from upgrader.core.model.operands import Operand
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.core.node_protocol.orders import NodeDriver, Reason, ValidateDriverOrder
from upgrader.stack import manifests
from upgrader.stack.node_pods.preflight import preflight_job
from upgrader.stack.operands.nondisruptive_operands import NondisruptiveOperand

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
TRAIN = """exec 3<>/dev/$SIM_VISIBLE_DEVICES
while ! [ -e /work ]; do /bin/busybox sleep 0.1; done
while [ -e /work ]; do :; done
exec /bin/busybox sleep 1000
"""


def rendered(bench):
    """What the box's stack is given for its exporters: DaemonSet and Service."""
    image = bench.product.simulated_gpus
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": bench.node.name},
        "driver": {"vendor": "sim", "version": "1.0.0"},
        "devicePlugin": {"image": bench.product.plugins["1"], "resourceName": RESOURCE},
        "monitoring": {"management": "Managed", "image": image},
    }
    stack = GpuStack(metadata=ObjectMeta(name="stack"), spec=msgspec.convert(spec, GpuStackSpec))
    stack_operands = {Operand.DEVICE_PLUGIN, Operand.MONITORING}
    one = NondisruptiveOperand(
        operand=Operand.MONITORING,
        named=image,
        image=image,
        max_unavailable=stack.spec.monitoring.max_unavailable,
        plugin=PLUGIN,
        before=manifests.earlier_operands(Operand.MONITORING, PLUGIN, stack_operands),
    )
    service = manifests.exporter_service(stack.metadata.name, bench.settings)
    return manifests.nondisruptive_daemonset(stack, one, bench.settings), service


@pytest.fixture
def target(installed):
    """Where the exporter of the box is scraped: what its Service found, once the pod is ready."""
    bench = installed
    daemonset, service = rendered(bench)
    space = f"namespaces/{bench.settings.namespace}"
    daemonsets, services = f"/apis/apps/v1/{space}/daemonsets", f"/api/v1/{space}/services"
    bench.api.create(daemonsets, daemonset)
    bench.api.create(services, service)
    name = service["metadata"]["name"]
    slices = f"/apis/discovery.k8s.io/v1/{space}/endpointslices?labelSelector=kubernetes.io/service-name={name}"

    def ready():
        found = [
            f"{address}:{port['port']}"
            for one in bench.api.get(slices)["items"]
            for endpoint in one.get("endpoints") or []
            for address in endpoint["addresses"]
            for port in one["ports"]
            if endpoint["conditions"].get("ready")
        ]
        return found[0] if found else None

    yield soon(ready, 90)
    bench.api.delete(f"{services}/{name}")
    bench.api.delete(f"{daemonsets}/{daemonset['metadata']['name']}")
    soon(lambda: not bench.operands("monitoring"), 60)


@pytest.fixture
def prometheus(installed, target, tmp_path):
    with Prometheus(installed.node, tmp_path, target).running() as running:
        yield running


def trainer(bench, name):
    container = {"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/busybox", "sh", "-c", TRAIN], "resources": {"limits": {RESOURCE: "1"}}}
    spec = {"nodeName": bench.node.name, "terminationGracePeriodSeconds": 1, "containers": [container]}
    bench.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    return soon(lambda: (pod := bench.api.get(f"{PODS}/{name}"))["status"]["phase"] == "Running" and pod, 60)


def tell(bench, pod, command):
    """Do something in a pod's own file system; what its shell sleeps by comes and goes meanwhile."""
    shells = [
        pid
        for pid in processes(bench.node, pod["metadata"]["uid"])
        if b"SIM_VISIBLE" in bench.node.enter("cat", f"/proc/{pid}/cmdline", check=False).stdout
    ]
    bench.node.enter("sh", "-c", f"{command} /proc/{shells[0]}/root/work")


def test_prometheus_sees_who_uses_which_device_and_how_much(installed, prometheus):
    bench = installed
    soon(lambda: len(prometheus.ask(UTIL)) == 8, 60)
    assert set(prometheus.ask(f'{UTIL}{{pod!=""}}')) == set()

    pod = trainer(bench, "trainer-7")
    ((device, name),) = soon(lambda: prometheus.ask(f'{UTIL}{{pod!=""}}'), 60)
    assert name == "trainer-7"
    assert set(prometheus.ask(f'{UTIL}{{pod="trainer-7",namespace="default",container="main"}}')) == {(device, name)}
    soon(lambda: prometheus.ask(UTIL)[device, name] < 5, 60)

    tell(bench, pod, "touch")
    soon(lambda: prometheus.ask(UTIL)[device, name] > 15, 60)
    values = prometheus.ask(UTIL)
    assert sorted(values) == sorted(
        [(device, name), *((f"sim-gpu{n}", "") for n in range(8) if f"sim-gpu{n}" != device)]
    )
    assert {value for (other, _), value in values.items() if other != device} == {0.0}
    assert prometheus.ask("DCGM_FI_DEV_POWER_USAGE")[device, name] > 70

    tell(bench, pod, "rm")
    soon(lambda: prometheus.ask(UTIL)[device, name] < 5, 60)

    bench.api.delete(f"{PODS}/trainer-7?gracePeriodSeconds=0")
    soon(lambda: prometheus.ask(f'{UTIL}{{pod!=""}}') == {}, 90)
    assert prometheus.ask(f'max_over_time({UTIL}{{pod="trainer-7"}}[5m])')[device, name] > 15


def test_an_unhealthy_device_is_named_by_exporter_look_and_validation(installed, prometheus):
    bench = installed
    order = ValidateDriverOrder(driver=NodeDriver(vendor="sim", version=""), resource=RESOURCE)

    def look(run):
        return bench.run(preflight_job(bench.node.name, run, order, bench.settings))

    code, well = look("before")
    assert (code, well.message) == (0, "sim 1.0.0 (simulated): 8 healthy device(s), 8 x nvidia.com/gpu advertised")

    bench.node.enter("sh", "-c", f"echo sim-gpu3 63 > {RUN_DIRECTORY}/sim/unhealthy")
    try:
        bench.wait_allocatable("7")
        said = "check devices: 1 of 8 with faults: sim-gpu3: marked unhealthy (XID 63)"
        code, found = look("unhealthy")
        assert (code, found.reason, found.message, found.facts) == (
            18,
            Reason.DEVICE_FAILED,
            said,
            {"check": "devices"},
        )
        there = bench.state("1.0.0", "1.34.4")
        code, found = bench.validate(bench.upgrade(there, there))
        assert (code, found.message) == (18, said)
        soon(lambda: prometheus.ask("DCGM_FI_DEV_XID_ERRORS > 0") == {("sim-gpu3", ""): 63.0}, 30)
    finally:
        bench.node.enter("rm", f"{RUN_DIRECTORY}/sim/unhealthy")
    bench.wait_allocatable("8")
    assert look("after")[0] == 0
    soon(lambda: prometheus.ask("DCGM_FI_DEV_XID_ERRORS > 0") == {}, 30)


def test_the_exporter_is_away_while_the_operands_are_off(installed, target):
    bench = installed
    bench.label({names.LABEL_OPERANDS: names.OFF})
    soon(lambda: not bench.operands("monitoring"), 60)
    bench.label({names.LABEL_OPERANDS: names.ON})
    soon(lambda: bench.operands("monitoring"), 60)
    bench.wait_allocatable("8")
