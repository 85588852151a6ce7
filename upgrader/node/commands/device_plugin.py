"""`device-plugin`: offers the simulated devices to each kubelet that runs here."""

from collections.abc import Sequence
from pathlib import Path

from upgrader.node.commands.options import CHECK, parser
from upgrader.node.host.clock import SystemClock


def main(arguments: Sequence[str]) -> int:
    """Serves for good; 0 with --check."""
    known = parser("device-plugin", "the simulated device plugin")
    known.add_argument("--resource", default="nvidia.com/gpu")
    known.add_argument("--slices", type=int, default=1, help="as how many devices each one is offered")
    known.add_argument("--cdi", action="store_true", help="hand in CDI devices where the runtime hook says so")
    known.add_argument("--folder", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    known.add_argument("--port", type=int, default=8080, help="where GET /ready says whether it is registered")
    known.add_argument("--check", action="store_true", help=CHECK)
    options = known.parse_args(arguments)
    if options.check:
        return 0
    # gRPC takes a quarter of a second to load, and a check of the options needs none of it.
    from upgrader.node.sim.device_plugin import Offer  # noqa: PLC0415
    from upgrader.node.sim.plugin_liveness import answer_probes  # noqa: PLC0415
    from upgrader.node.sim.registration import Registration  # noqa: PLC0415

    offer = Offer(
        resource=options.resource,
        count=options.count,
        run=options.run,
        driver=options.driver,
        cdi=options.cdi,
        slices=options.slices,
    )
    registration = Registration(offer, folder=options.folder, clock=SystemClock())
    answer_probes(registration.ready, options.port)
    while True:
        registration.serve_one_kubelet()
