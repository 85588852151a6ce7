"""`gpu-features`: a report of the loaded driver and its devices."""

import time
from collections.abc import Sequence

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader.node.commands.report import run_report
from upgrader_dev.node.commands.options import create_parser
from upgrader_dev.node.gpu_features import read_gpus, wait_for_changed_gpus, write_report


def main(arguments: Sequence[str]) -> int:
    """Report the GPUs; with `--watch`, end with a report only when another driver is loaded.

    The kubelet copies the message into the status of the pod, and restarts the container.
    """
    parser = create_parser("gpu-features", "report of the simulated devices")
    parser.add_argument("--watch", action="store_true", help="end when another driver is loaded")
    options = parser.parse_args(arguments)

    def read() -> GpuReport:
        return read_gpus(options.run, driver=options.driver, count=options.count)

    def read_and_leave() -> GpuReport:
        report = wait_for_changed_gpus(read, time.sleep) if options.watch else read()
        write_report(options.run, report)
        return report

    return run_report(read_and_leave)
