"""The `sim` exporter: dcgm-exporter's metric names and labels for simulated devices, each attributed to its pods.

No GPU is measured, and every HELP text, the model and a metric of its own say so. Utilisation and memory are those of
the processes that hold a device (device_load.py); temperature and power are made from the utilisation; the XID is what
the `unhealthy` file says. Who has a device is the kubelet's word.
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

from upgrader.core.node_protocol.gpu_features import MEMORY_MIB
from upgrader.node.driver import devices
from upgrader.node.driver.loaded_driver import Loaded, loaded
from upgrader.node.host.clock import Clock
from upgrader.node.kubelet.pod_resources import PodResources, Use
from upgrader.node.sim.device_load import DeviceLoad, Load

PORT = 9400
"""dcgm-exporter's."""

MODEL = "Simulated GPU"
LABELS = (
    *("gpu", "UUID", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("container", "namespace", "pod", "vgpu"),
)
"""As dcgm-exporter has them; an empty label is the same as none. `vgpu` numbers the offers of a shared one."""

IDLE_CELSIUS, CELSIUS_PER_PERCENT = 30.0, 0.45
IDLE_WATTS, WATTS_PER_PERCENT = 70.0, 6.3

_MIB = 1 << 20
_log = logging.getLogger(__name__)


class Reading(Struct, frozen=True, kw_only=True):
    """One device at one moment."""

    load: Load
    xid: int  # 0: nothing wrong

    def values(self) -> dict[str, float]:
        """By metric."""
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
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C); simulated: made from the utilization.",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W); simulated: made from the utilization.",
    "DCGM_FI_DEV_XID_ERRORS": "Value of the last XID error encountered; simulated: the node's `unhealthy` file.",
}


class SimDevices(Collector):
    """Asked at each scrape; what was used is what the last look of `load` found.

    Args:
        run: the node's RUN_DIRECTORY.
        node: the node's name.
        driver: vendor of the driver on which devices are simulated.
        count: of devices where that is a real one; the simulated one's record says how many it has.
        load: who uses them.
        pods: who has them.
    """

    def __init__(self, *, run: Path, node: str, driver: str, count: int, load: DeviceLoad, pods: PodResources) -> None:
        self._run = run
        self._node = node
        self._driver = driver
        self._count = count
        self._load = load
        self._pods = pods

    def collect(self) -> Iterable[Metric]:
        """All series; none of a device while no driver is loaded."""
        driver = loaded(self._run, self._driver)
        uses = self._uses()
        names = [devices.name_of(number) for number in range(self._number(driver))]
        families = {name: GaugeMetricFamily(name, text, labels=LABELS) for name, text in HELP.items()}
        unhealthy, loads = devices.unhealthy(self._run), self._load.loads
        for name in names:
            reading = Reading(load=loads.get(name, Load()), xid=unhealthy.get(name, 0))
            for labels in self._labels(name, driver, uses or ()):
                for metric, value in reading.values().items():
                    families[metric].add_metric(labels, value)
        yield from families.values()
        yield _gauge(
            "upgrader_sim_devices", "Simulated devices of the loaded driver; no GPU is behind them.", len(names)
        )
        yield _gauge(
            "upgrader_sim_attribution",
            "1 while the kubelet says which pod has which device, else 0: then no series names a pod.",
            int(uses is not None),
        )
        yield _gauge(
            "upgrader_sim_unreadable_processes",
            "Processes whose open files may not be seen, so that their use of simulated devices is not.",
            self._load.unreadable,
        )

    def _number(self, driver: Loaded | None) -> int:
        if driver is None:
            return 0
        return driver.devices if self._driver == devices.VENDOR else self._count

    def _uses(self) -> tuple[Use, ...] | None:
        try:
            return self._pods.uses()
        except grpc.RpcError as error:
            _log.warning("the kubelet does not say which pod has which device: %s", error)
            return None

    def _labels(self, name: str, driver: Loaded | None, uses: Sequence[Use]) -> Sequence[Sequence[str]]:
        """Of each series of a device: one for each container that has it, or one without."""
        version = driver.version if driver is not None else ""
        own = (str(devices.number_of(name)), self._uuid(name), name, MODEL, self._node, version)
        holders = [
            (*own, one.container, one.namespace, one.pod, offer)
            for one in uses
            for device, offer in [devices.shared_name(one.device)]
            if device == name
        ]
        return holders or [(*own, "", "", "", "")]

    def _uuid(self, name: str) -> str:
        """The same for as long as the node has its name."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}.{self._node}')}"


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def serve(sim: SimDevices, load: DeviceLoad, *, port: int, every: float, clock: Clock) -> None:
    """Answer scrapes on all addresses of this container, and look at the node every so many seconds; never returns."""
    registry = CollectorRegistry()
    registry.register(sim)
    load.look(clock.monotonic())
    server, _ = start_http_server(port, registry=registry)
    _log.info("metrics of simulated devices at :%d/metrics", server.server_port)
    while True:
        clock.wait(every)
        load.look(clock.monotonic())
