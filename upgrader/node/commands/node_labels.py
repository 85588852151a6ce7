"""`node-labels`: what the node is."""

import time
from collections.abc import Sequence

from upgrader.node.commands.report import reported
from upgrader.node.host.features import changed_features, read_features
from upgrader.node.host.host import Host


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command; with `--watch` it reports only when another kernel was installed.

    The kubelet carries the message, and starts it again.
    """
    if list(arguments) not in ([], ["--watch"]):
        raise SystemExit(f"`node-labels` takes nothing but --watch, not {' '.join(arguments)!r}")
    return reported(lambda: changed_features(Host(), time.sleep) if arguments else read_features(Host()))
