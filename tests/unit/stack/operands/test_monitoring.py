"""What finds the exporters of a stack, and the look before a job, against files that a person can read."""

import msgspec
import pytest

from tests.support.golden import assert_golden, in_full
from tests.support.repository import ROOT
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import GpuStack, GpuStackSpec
from upgrader.api.v1alpha1.operand_specs import DevicePluginSpec, DriverSpec
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.node_protocol.orders import NodeDriver, ValidateDriverOrder
from upgrader.stack.node_pods.preflight import preflight_job
from upgrader.stack.operands.monitoring import exporter_service, service_monitor
from upgrader.stack.operands.nondisruptive_operands import NondisruptiveOperand, nondisruptive_daemonset
from upgrader.stack.settings import StackSettings

GOLDEN = ROOT / "tests" / "unit" / "stack" / "operands" / "golden-monitoring"
EXAMPLE = ROOT / "docs" / "examples" / "preflight-job.yaml"
SETTINGS = StackSettings(node_image="registry.example/upgrader@sha256:" + "c" * 64)
ORDER = ValidateDriverOrder(driver=NodeDriver(vendor="sim", version=""), resource="nvidia.com/gpu")

RENDERED = {
    "exporter-service": exporter_service("pool-a", SETTINGS),
    "exporter-servicemonitor": service_monitor("pool-a", SETTINGS),
    "preflight-job": preflight_job("node-1", "train-17", ORDER, SETTINGS),
}


def exporter(vendor):
    spec = GpuStackSpec(
        node_selector={"pool": "a"},
        driver=DriverSpec(vendor=vendor, version="1"),
        device_plugin=DevicePluginSpec(image="registry.example/plugin:1"),
    )
    stack = GpuStack(metadata=ObjectMeta(name="pool-a"), spec=spec)
    plugin = PluginSettings(vendor=vendor, driver_vendor=vendor, resource_name="nvidia.com/gpu")
    image = SETTINGS.node_image
    one = NondisruptiveOperand(
        operand=Operand.MONITORING, named="e:1", image=image, max_unavailable="10%", plugin=plugin
    )
    return nondisruptive_daemonset(stack, one, SETTINGS)


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_rendered_is_what_the_file_holds(name):
    assert_golden(GOLDEN / f"{name}.yaml", in_full(RENDERED[name]))


def test_no_kept_file_is_without_its_manifest():
    assert {file.stem for file in GOLDEN.glob("*")} == set(RENDERED)


@pytest.mark.parametrize("vendor", ["sim", "nvidia"])
def test_service_and_monitor_select_what_the_daemonset_makes(vendor):
    template = exporter(vendor)["spec"]["template"]
    service, monitor = RENDERED["exporter-service"], RENDERED["exporter-servicemonitor"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (container,) = template["spec"]["containers"]
    assert port["name"] == monitor["spec"]["endpoints"][0]["port"]
    assert [{"name": port["targetPort"], "containerPort": port["port"]}] == container["ports"]


def test_stacks_have_exporters_of_their_own():
    one, other = (exporter_service(name, SETTINGS) for name in ("pool-a", "pool-b"))
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["spec"]["selector"] != other["spec"]["selector"]


def test_a_change_of_what_is_rendered_is_seen_by_its_mark():
    changed = msgspec.structs.replace(SETTINGS, namespace="elsewhere")
    assert (
        exporter_service("pool-a", changed)["metadata"]["annotations"]
        != (RENDERED["exporter-service"]["metadata"]["annotations"])
    )


def test_a_look_before_a_job_takes_no_device_and_is_made_once_for_a_run():
    pod = RENDERED["preflight-job"]["spec"]["template"]["spec"]
    assert "limits" not in pod["containers"][0]["resources"]
    again, another = (preflight_job("node-1", run, ORDER, SETTINGS) for run in ("train-17", "train-18"))
    assert again == RENDERED["preflight-job"]
    assert another["metadata"]["name"] != again["metadata"]["name"]


def test_the_example_is_what_we_render():
    image = StackSettings(node_image="registry.example/gpu-upgrader-node@sha256:" + "0" * 64)
    rendered = preflight_job("gpu-node-1", "train-17", ORDER, image)
    text = "".join(line for line in EXAMPLE.read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert text == in_full(rendered)
