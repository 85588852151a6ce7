"""`device-plugin`: registers the simulated devices with the kubelet, again after each restart of the kubelet."""

from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.clock import MonotonicClock
from upgrader_dev.node.commands.options import CHECK, create_parser


def main(arguments: Sequence[str]) -> int:
    """Serve until the process ends; with --check, return 0."""
    parser = create_parser("device-plugin", "the simulated device plugin")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--slices", type=int, default=1, help="number of devices that each device is advertised as")
    parser.add_argument(
        "--cdi", action="store_true", help="use CDI devices if the runtime hook reports support for them"
    )
    parser.add_argument("--folder", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument(
        "--port", type=int, default=8080, help="port of GET /ready, which reports whether the plugin is registered"
    )
    parser.add_argument("--check", action="store_true", help=CHECK)
    options = parser.parse_args(arguments)
    if options.check:
        return 0
    # gRPC takes a quarter of a second to import; a check of the options does not need it.
    from upgrader_dev.node.device_plugin import AdvertisedDevices  # noqa: PLC0415
    from upgrader_dev.node.plugin_liveness import start_probe_server  # noqa: PLC0415
    from upgrader_dev.node.registration import Registration  # noqa: PLC0415

    offer = AdvertisedDevices(
        resource=options.resource,
        count=options.count,
        run=options.run,
        driver=options.driver,
        cdi=options.cdi,
        slices=options.slices,
    )
    registration = Registration(offer, folder=options.folder, clock=MonotonicClock())
    start_probe_server(registration.ready, options.port)
    while True:
        registration.serve_one_kubelet()
