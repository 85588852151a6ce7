"""`gpu-features`: what is known of the GPUs."""

import time
from collections.abc import Sequence

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader.node.commands.options import parser
from upgrader.node.commands.report import reported
from upgrader.node.sim.gpu_features import changed_gpus, leave_done, read_gpus


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command; with `--watch` it reports only when another driver is loaded.

    The kubelet carries the message, and starts it again.
    """
    known = parser("gpu-features", "labels of the simulated devices")
    known.add_argument("--watch", action="store_true", help="end when another driver is loaded")
    options = known.parse_args(arguments)

    def read() -> GpuReport:
        return read_gpus(options.run, driver=options.driver, count=options.count)

    def read_and_leave() -> GpuReport:
        report = changed_gpus(read, time.sleep) if options.watch else read()
        leave_done(options.run, report)
        return report

    return reported(read_and_leave)
