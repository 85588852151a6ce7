"""`exporter`: metrics of the simulated devices."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.orders import NODE_VARIABLE
from upgrader.node.host.clock import MonotonicClock
from upgrader.node.kubelet.pod_resources import PodResources
from upgrader.node.validation import devices
from upgrader_dev.node import exporter
from upgrader_dev.node.commands.options import create_parser
from upgrader_dev.node.device_load import DeviceLoad


def main(arguments: Sequence[str]) -> int:
    """Serve until the process ends."""
    parser = create_parser("exporter", "metrics of the simulated devices")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--socket", type=Path, default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument(
        "--every", type=float, default=2.0, help="seconds between two scans of the processes of the node"
    )
    options = parser.parse_args(arguments)
    load = DeviceLoad(devices.device_folder(options.run) if options.driver == devices.VENDOR else None)
    sim = exporter.SimDevices(
        run=options.run,
        node=os.environ.get(NODE_VARIABLE, ""),
        driver=options.driver,
        count=options.count,
        load=load,
        pods=PodResources(options.socket, options.resource),
    )
    exporter.serve_metrics(sim, load, port=options.port, every=options.every, clock=MonotonicClock())
    return 0
