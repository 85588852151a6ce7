"""The pool's taint on real kubelets and a real scheduler: who is kept away, who may come, and that all operands run."""

import shlex

import msgspec
import pytest
import yaml

from tests.support.guard_rails import STACK
from tests.support.programs import soon
from tests.support.workbench import PLUGIN, RESOURCE, Workbench
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.revisions import plugin_key
from upgrader.stack import manifests
from upgrader.stack.guard_rails import kubelet_setting, taint_command
from upgrader.stack.operands.nondisruptive_operands import NondisruptiveOperand
from upgrader_dev.devcluster import BoxSpec, NodeTaint

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
RAILS = msgspec.convert(yaml.safe_load(STACK), GpuStack)
TAINT = {"key": RESOURCE, "value": "present", "effect": "NoSchedule"}
HOOK = "f" * 16
COMPONENTS = ("driver", "runtime", "device-plugin", "feature-discovery", "monitoring", "node-features")


@pytest.fixture(scope="module")
def bench(start_cluster, tmp_path_factory):
    """The only node of the pool; no operand runs on it yet, and it has its taint."""
    box = BoxSpec(name="gpu-a", labels=RAILS.spec.node_selector)
    made = Workbench(start_cluster("taint", boxes=(box,)), box.name, tmp_path_factory.mktemp("kubelets"))
    as_a_person(made.api, taint_command(RAILS))
    return made


def as_a_person(api, command):
    """`kubectl taint nodes -l SELECTOR KEY=VALUE:EFFECT --overwrite`, there being no kubectl."""
    match shlex.split(command):
        case ["kubectl", "taint", "nodes", "-l", selector, taint, "--overwrite"]:
            key, _, rest = taint.partition("=")
            value, _, effect = rest.partition(":")
            for node in api.get(f"{NODES}?labelSelector={selector}")["items"]:
                taints = [*node["spec"].get("taints", []), {"key": key, "value": value, "effect": effect}]
                assert api.patch(f"{NODES}/{node['metadata']['name']}", {"spec": {"taints": taints}})
        case other:
            raise AssertionError(other)


@pytest.fixture
def run(bench):
    """A pod that may go anywhere, with GPUs or without."""
    made = []

    def start(name, *, gpus=0, **spec):
        container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
        container |= {"resources": {"limits": {RESOURCE: str(gpus)}}} if gpus else {}
        bench.api.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})
        made.append(name)

    yield start
    for name in made:
        bench.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def refusal(bench, name):
    """Why a pod is on no node, in the scheduler's words."""
    conditions = bench.api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return next((one["message"] for one in conditions if one.get("reason") == "Unschedulable"), "")


def where(bench, name):
    """The node on which a pod runs."""
    found = bench.api.get(f"{PODS}/{name}")
    return found["spec"]["nodeName"] if found["status"]["phase"] == "Running" else ""


@pytest.fixture(scope="module")
def whole(bench):
    """Every operand of a stack, put on the tainted node as a node upgrade does."""
    settings = PluginSettings(vendor="sim", driver_vendor="sim", resource_name=RESOURCE, cdi=True)
    image = bench.product.plugins["1"]
    key = plugin_key(digest=image, resource_name=RESOURCE, more=settings.facts)
    stack = msgspec.structs.replace(RAILS, metadata=ObjectMeta(name="pool-a", uid="1"))
    stack_operands = frozenset(Operand) - {Operand.DRIVER}
    nondisruptive = [
        manifests.nondisruptive_daemonset(
            stack,
            NondisruptiveOperand(
                operand=one,
                named=bench.product.simulated_gpus,
                image=bench.product.simulated_gpus,
                max_unavailable="1",
                plugin=PLUGIN,
                before=manifests.earlier_operands(one, PLUGIN, stack_operands),
            ),
            bench.settings,
        )
        for one in (Operand.FEATURE_DISCOVERY, Operand.MONITORING)
    ]
    labeller = manifests.node_features_daemonset(stack, bench.settings)
    labeller["metadata"].pop("ownerReferences")  # nobody made the stack itself here
    upgraded = [
        manifests.runtime_daemonset("pool-a", HOOK, image, settings, bench.settings),
        manifests.plugin_daemonset("pool-a", key, image, settings, bench.settings),
    ]
    for one in (*upgraded, *nondisruptive, labeller):
        assert bench.api.create(f"/apis/apps/v1/namespaces/{bench.settings.namespace}/daemonsets", one)
    driver = bench.state("1.0.0", "1.34.4")["driverKey"]
    bench.label({names.LABEL_DRIVER: driver, names.LABEL_RUNTIME: HOOK, names.LABEL_DEVICE_PLUGIN: key})
    bench.label({names.LABEL_OPERANDS: names.ON})
    bench.wait_allocatable("8")
    return bench


def ready(bench, component):
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for pod in bench.operands(component)
        for one in pod["status"].get("conditions", [])
    )


def test_a_pod_without_gpus_stays_pending_and_the_scheduler_says_why(bench, run):
    run("stray")

    said = soon(lambda: refusal(bench, "stray"), 60)

    assert said.startswith("0/1 nodes are available: 1 node(s) had untolerated taint(s).")
    run("invited", tolerations=[TAINT | {"operator": "Equal"}])
    assert soon(lambda: where(bench, "invited"), 60) == "gpu-a"
    assert where(bench, "stray") == ""


def test_every_operand_comes_up_under_the_taint(whole):
    for component in COMPONENTS:
        soon(lambda component=component: ready(whole, component), 120)


def test_a_node_upgrade_and_its_validation_run_under_the_taint(whole):
    there = whole.state("1.0.0", "1.34.4")
    order = whole.upgrade(there, there)

    assert whole.prepare(order)[0] == 0
    assert whole.validate(order)[0] == 0


def test_a_pod_that_asks_for_gpus_is_let_in_by_the_api_server(whole, run):
    run("trainer", gpus=1)

    assert soon(lambda: where(whole, "trainer"), 60) == "gpu-a"
    given = whole.api.get(f"{PODS}/trainer")["spec"]["tolerations"]
    assert {"key": RESOURCE, "operator": "Exists", "effect": "NoSchedule"} in given


def test_a_node_that_joins_later_brings_the_taint_along(bench, run):
    (taint,) = yaml.safe_load(kubelet_setting(RAILS))["registerWithTaints"]
    assert taint == TAINT

    spec = BoxSpec(name="gpu-b", labels=RAILS.spec.node_selector, taints=(NodeTaint(**taint),))
    bench.cluster.add_box(spec).wait_ready()

    assert TAINT in bench.api.get(f"{NODES}/gpu-b")["spec"]["taints"]  # beside `not-ready`, which goes a moment later
    run("late", nodeSelector={"kubernetes.io/hostname": "gpu-b"})
    said = soon(lambda: refusal(bench, "late"), 60)
    assert said.startswith("0/2 nodes are available: 2 node(s) had untolerated taint(s).")
    tolerations = [{"key": RESOURCE, "operator": "Exists"}]
    run("later", nodeSelector={"kubernetes.io/hostname": "gpu-b"}, tolerations=tolerations)
    assert soon(lambda: where(bench, "later"), 60) == "gpu-b"
