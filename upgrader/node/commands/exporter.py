"""`exporter`: metrics of the simulated devices."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.orders import NODE_VARIABLE
from upgrader.node.commands.options import parser
from upgrader.node.driver import devices
from upgrader.node.host.clock import SystemClock
from upgrader.node.kubelet.pod_resources import PodResources
from upgrader.node.sim import exporter
from upgrader.node.sim.device_load import DeviceLoad


def main(arguments: Sequence[str]) -> int:
    """Serves until it is ended."""
    known = parser("exporter", "metrics of the simulated devices")
    known.add_argument("--resource", default="nvidia.com/gpu")
    known.add_argument("--socket", type=Path, default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    known.add_argument("--port", type=int, default=9400)
    known.add_argument("--every", type=float, default=2.0, help="seconds between two looks at the node's processes")
    options = known.parse_args(arguments)
    load = DeviceLoad(devices.folder(options.run) if options.driver == devices.VENDOR else None)
    sim = exporter.SimDevices(
        run=options.run,
        node=os.environ.get(NODE_VARIABLE, ""),
        driver=options.driver,
        count=options.count,
        load=load,
        pods=PodResources(options.socket, options.resource),
    )
    exporter.serve(sim, load, port=options.port, every=options.every, clock=SystemClock())
    return 0
