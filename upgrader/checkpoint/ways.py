"""All ways of asking and answering, by the name that jobs declare."""

from upgrader.checkpoint.api import ApiWay
from upgrader.checkpoint.exec import ExecWay
from upgrader.checkpoint.file import FileWay
from upgrader.checkpoint.http import HttpWay
from upgrader.checkpoint.marks import Pods
from upgrader.checkpoint.none import NoWay
from upgrader.checkpoint.signal import SignalWay

AnyWay = FileWay | ExecWay | HttpWay | SignalWay | ApiWay | NoWay


def ways(pods: Pods) -> dict[str, AnyWay]:
    """One of each."""
    return {
        "file": FileWay(pods),
        "exec": ExecWay(pods),
        "http": HttpWay(pods),
        "signal": SignalWay(pods),
        "api": ApiWay(pods),
        "none": NoWay(),
    }
