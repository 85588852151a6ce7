"""`node-labels`: a report of the features of the node."""

import time
from collections.abc import Sequence

from upgrader.node.commands.report import run_report
from upgrader.node.host.features import read_features, wait_for_changed_features
from upgrader.node.host.host import Host


def main(arguments: Sequence[str]) -> int:
    """Report the features; with `--watch`, end with a report only when the installed kernels change.

    The kubelet copies the message into the status of the pod, and restarts the container.
    """
    if list(arguments) not in ([], ["--watch"]):
        raise SystemExit(f"`node-labels` has no argument except --watch, not {' '.join(arguments)!r}")
    return run_report(lambda: wait_for_changed_features(Host(), time.sleep) if arguments else read_features(Host()))
