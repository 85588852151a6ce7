"""All checkpoint methods, by the name that jobs declare."""

from upgrader.checkpoint.api import ApiMethod
from upgrader.checkpoint.exec import ExecMethod
from upgrader.checkpoint.file import FileMethod
from upgrader.checkpoint.http import HttpMethod
from upgrader.checkpoint.marks import Pods
from upgrader.checkpoint.none import NoMethod
from upgrader.checkpoint.signal import SignalMethod

AnyMethod = FileMethod | ExecMethod | HttpMethod | SignalMethod | ApiMethod | NoMethod


def methods(pods: Pods) -> dict[str, AnyMethod]:
    """One of each."""
    return {
        "file": FileMethod(pods),
        "exec": ExecMethod(pods),
        "http": HttpMethod(pods),
        "signal": SignalMethod(pods),
        "api": ApiMethod(pods),
        "none": NoMethod(),
    }
