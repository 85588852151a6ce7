"""The kernel modules of a real driver: loaded, built from the source of the image that loaded them, of its version."""

from pathlib import Path

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import Loaded
from upgrader.node.host.task_result import OrderFailedError


def check(run: Path, system: Path, present: Loaded) -> None:
    """Compare what the kernel shows of each module with what `load` left in RUN_DIRECTORY/<vendor>/load-order.

    Raises:
        OrderFailedError: DRIVER_MISMATCH; all that differs is in the message.
    """
    order = run / present.vendor / "load-order"
    try:
        lines = [line.split() for line in order.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{order} is not there: which modules were loaded is not known"
        ) from error
    own = [(words[1], words[2]) for words in lines if words[:1] == ["module"]]
    faults = [fault for name, source in own if (fault := _fault(system / "module" / name, source, present.version))]
    if faults:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, "; ".join(faults))


def _fault(module: Path, source: str, version: str) -> str:
    if not module.is_dir():
        return f"module {module.name} is not loaded"
    built = _said(module / "srcversion")
    if built != source:
        return f"module {module.name} is of another build (srcversion {built or 'none'}, not {source})"
    said = _said(module / "version")
    return f"module {module.name} says version {said}, the driver is {version}" if said not in {"", version} else ""


def _said(file: Path) -> str:
    """Empty where the module says nothing of it."""
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
