"""Check of the kernel modules of a real driver: loaded, and of the source and version of the image that loaded them."""

from pathlib import Path

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.loaded_driver import LoadedDriver
from upgrader.node.host.task_result import OrderFailedError


def check_modules(run: Path, system: Path, present: LoadedDriver) -> dict[str, str]:
    """Compare the modules in the kernel with RUN_DIRECTORY/<vendor>/load-order, which `load` wrote.

    Returns the optional modules that are not loaded, with the reason of each.

    Raises:
        OrderFailedError: DRIVER_MISMATCH; the message contains all differences.
    """
    order = run / present.vendor / "load-order"
    try:
        lines = [line.split() for line in order.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise OrderFailedError(
            Reason.DRIVER_MISMATCH, f"{order} does not exist, so the loaded modules are unknown"
        ) from error
    own = {words[1]: (words[2], words[-1]) for words in lines if words[:1] == ["module"] and len(words) > 2}
    absent = {
        name: present.not_loaded.get(name, "it is gone since the driver was loaded")
        for name, (_, need) in own.items()
        if need == "optional" and not (system / "module" / name).is_dir()
    }
    faults = [
        fault
        for name, (source, _) in own.items()
        if name not in absent and (fault := _module_fault(system / "module" / name, source, present.version))
    ]
    if faults:
        raise OrderFailedError(Reason.DRIVER_MISMATCH, "; ".join(faults))
    return absent


def _module_fault(module: Path, source: str, version: str) -> str:
    if not module.is_dir():
        return f"module {module.name} is not loaded"
    srcversion = _read_attribute(module / "srcversion")
    if srcversion != source:
        return f"module {module.name} is from another build (srcversion {srcversion or 'none'} instead of {source})"
    module_version = _read_attribute(module / "version")
    return (
        f"module {module.name} has version {module_version}, the driver {version}"
        if module_version not in {"", version}
        else ""
    )


def _read_attribute(file: Path) -> str:
    """An attribute of a module; empty if the module does not have it."""
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
