"""The `sim` exporter: metrics of simulated devices with the names and labels of dcgm-exporter, by pod.

No GPU is measured; all HELP texts, the model and a separate metric state that. Utilization and memory are those of the
processes that hold a device (device_load.py); temperature and power are computed from the utilization; the XID is that
of the `unhealthy` file. The pods of devices are from the kubelet.
"""

import logging
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import grpc
from msgspec import Struct
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from upgrader.node.driver.loaded_driver import LoadedDriver, read_loaded_driver
from upgrader.node.host.clock import NodeClock
from upgrader.node.kubelet.pod_resources import DeviceUse, PodResources
from upgrader.node.validation import devices
from upgrader_dev.node.device_load import DeviceLoad, DeviceUsage

PORT = 9400
"""Port of dcgm-exporter."""

MODEL = "Simulated GPU"
LABELS = (
    *("gpu", "UUID", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("container", "namespace", "pod", "vgpu"),
)
"""Labels of dcgm-exporter; an empty value is equal to no label. `vgpu` is the number of a share."""

IDLE_CELSIUS, CELSIUS_PER_PERCENT = 30.0, 0.45
IDLE_WATTS, WATTS_PER_PERCENT = 70.0, 6.3

_MIB = 1 << 20
_log = logging.getLogger(__name__)
MEMORY_MIB = 81920
"""The memory that a simulated device reports; the labels of its node report the same."""


class Reading(Struct, frozen=True, kw_only=True):
    """The measured values of a device."""

    load: DeviceUsage
    xid: int  # 0: no error

    def metric_values(self) -> dict[str, float]:
        """The values by name of the metric."""
        used = min(float(MEMORY_MIB), self.load.memory / _MIB)
        return {
            "DCGM_FI_DEV_GPU_UTIL": self.load.percent,
            "DCGM_FI_DEV_FB_USED": used,
            "DCGM_FI_DEV_FB_FREE": MEMORY_MIB - used,
            "DCGM_FI_DEV_GPU_TEMP": IDLE_CELSIUS + CELSIUS_PER_PERCENT * self.load.percent,
            "DCGM_FI_DEV_POWER_USAGE": IDLE_WATTS + WATTS_PER_PERCENT * self.load.percent,
            "DCGM_FI_DEV_XID_ERRORS": float(self.xid),
        }


HELP = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %); simulated: CPU time of the processes that hold the device.",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB); simulated: memory of the processes that hold the device.",
    "DCGM_FI_DEV_FB_FREE": f"Framebuffer memory free (in MiB); simulated: of {MEMORY_MIB}.",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C); simulated: computed from the utilization.",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W); simulated: computed from the utilization.",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered; simulated: from the `unhealthy` file.",
}


class SimDevices(Collector):
    """Collector of the metrics; the usage is the last measurement of `load`.

    Args:
        run: RUN_DIRECTORY of the node.
        node: name of the node.
        driver: vendor of the loaded driver.
        count: number of devices with a real driver; the record of a simulated driver has its number.
        load: usage of the devices.
        pods: pods of the devices.
    """

    def __init__(self, *, run: Path, node: str, driver: str, count: int, load: DeviceLoad, pods: PodResources) -> None:
        self._run = run
        self._node = node
        self._driver = driver
        self._count = count
        self._load = load
        self._pods = pods

    def collect(self) -> Iterable[Metric]:
        """All series; there are none of devices while no driver is loaded."""
        driver = read_loaded_driver(self._run, self._driver)
        uses = self._list_uses()
        names = [devices.device_name(number) for number in range(self._device_count(driver))]
        families = {name: GaugeMetricFamily(name, text, labels=LABELS) for name, text in HELP.items()}
        unhealthy, loads = devices.unhealthy_devices(self._run), self._load.loads
        for name in names:
            reading = Reading(load=loads.get(name, DeviceUsage()), xid=unhealthy.get(name, 0))
            for labels in self._label_values(name, driver, uses or ()):
                for metric, value in reading.metric_values().items():
                    families[metric].add_metric(labels, value)
        yield from families.values()
        yield _unlabelled_gauge(
            "upgrader_sim_devices", "Simulated devices of the loaded driver, without a GPU.", len(names)
        )
        yield _unlabelled_gauge(
            "upgrader_sim_attribution",
            "1 if the pods of devices can be read from the kubelet, else 0; then no series has a pod.",
            int(uses is not None),
        )
        yield _unlabelled_gauge(
            "upgrader_sim_unreadable_processes",
            "Processes whose open files cannot be read; their usage of simulated devices is not measured.",
            self._load.unreadable,
        )

    def _device_count(self, driver: LoadedDriver | None) -> int:
        if driver is None:
            return 0
        return driver.devices if self._driver == devices.VENDOR else self._count

    def _list_uses(self) -> tuple[DeviceUse, ...] | None:
        try:
            return self._pods.list_uses()
        except grpc.RpcError as error:
            _log.warning("the pods of devices cannot be read from the kubelet: %s", error)
            return None

    def _label_values(
        self, name: str, driver: LoadedDriver | None, uses: Sequence[DeviceUse]
    ) -> Sequence[Sequence[str]]:
        """The label values of a device: one series for each container that has it, or one without a container."""
        version = driver.version if driver is not None else ""
        own = (str(devices.device_number(name)), self._device_uuid(name), name, MODEL, self._node, version)
        holders = [
            (*own, use.container, use.namespace, use.pod, offer)
            for use in uses
            for device, offer in [devices.split_shared_name(use.device)]
            if device == name
        ]
        return holders or [(*own, "", "", "", "")]

    def _device_uuid(self, name: str) -> str:
        """A UUID from the names of device and node."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}.{self._node}')}"


def _unlabelled_gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def serve_metrics(sim: SimDevices, load: DeviceLoad, *, port: int, every: float, clock: NodeClock) -> None:
    """Serve metrics on all addresses of this container, and measure every `every` seconds; never returns."""
    registry = CollectorRegistry()
    registry.register(sim)
    load.measure(clock.monotonic())
    server, _ = start_http_server(port, registry=registry)
    _log.info("metrics of simulated devices at :%d/metrics", server.server_port)
    while True:
        clock.wait(every)
        load.measure(clock.monotonic())
