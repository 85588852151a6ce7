"""All checkpoint methods, by their declared names."""

from upgrader.checkpoint.api import ApiMethod
from upgrader.checkpoint.exec import ExecMethod
from upgrader.checkpoint.file import FileMethod
from upgrader.checkpoint.http import HttpMethod
from upgrader.checkpoint.none import NoMethod
from upgrader.checkpoint.pod_annotations import Pods
from upgrader.checkpoint.signal import SignalMethod

AnyMethod = FileMethod | ExecMethod | HttpMethod | SignalMethod | ApiMethod | NoMethod


def checkpoint_methods(pods: Pods) -> dict[str, AnyMethod]:
    """An instance of each method by name."""
    return {
        "file": FileMethod(pods),
        "exec": ExecMethod(pods),
        "http": HttpMethod(pods),
        "signal": SignalMethod(pods),
        "api": ApiMethod(pods),
        "none": NoMethod(),
    }
