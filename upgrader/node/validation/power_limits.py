"""Power limits of GPUs, which the driver forgets when it is unloaded: kept before that, and set again after it.

Only limits that differ from the default of their GPU are kept. nvidia-smi of 535 and 550 ends with exit code 0 if a GPU
does not support a limit, so the report decides whether a limit is set.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, json

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError
from upgrader.core.node_protocol.orders import OrderResult, Reason, UpgradeOrder
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.gpu_inspection import VENDOR
from upgrader.node.validation.gpu_report import GpuFacts
from upgrader.node.validation.smi_program import SmiProgram, find_smi
from upgrader.process.atomic_file import write_file

FILE = "power-limits.json"
"""In STATE_DIRECTORY of the node."""

_TOLERANCE = 0.5
"""Watts; nvidia-smi prints two digits after the point."""


class KeptLimits(Struct, frozen=True, kw_only=True):
    """Power limits in watts, by the UUID of the GPU, before the upgrade with this identity."""

    upgrade: str
    watts: dict[str, float]


def keep_power_limits(order: UpgradeOrder, host: Host, programs: ProgramRunner) -> dict[str, str]:
    """Keep the power limits before the driver of an order is unloaded; returns facts for the result.

    A limit that cannot be read stops no unload: the driver may be unloaded because it does not respond any more. Limits
    that an earlier run of this upgrade kept, or the upgrade that it reverts, stay; so do limits that an earlier upgrade
    could not set again, unless users have set others since.
    """
    smi = find_smi(host.state / "drivers" / VENDOR / "current", programs)
    if order.unload is None or order.unload.vendor != VENDOR or smi is None:
        return {}
    try:
        kept = _read_kept(host.state / FILE)
        if kept is not None and kept.upgrade in {order.upgrade, order.undoes}:
            return {}
        watts = find_set_limits(smi.read_report().gpus)
    except OrderFailedError as error:
        return {"power limits": f"not kept: {error}"}
    if not watts:
        return {}
    write_file(host.state / FILE, json.encode(KeptLimits(upgrade=order.upgrade, watts=watts)))
    return {"power limits": f"kept: {describe_limits(watts)}"}


def restore_power_limits(state: Path, programs: ProgramRunner) -> OrderResult:
    """Set the kept power limits on the GPUs of the loaded driver, and forget them; without any the message is empty.

    A GPU that is missing has no limit to set: the validation of devices names it.

    Args:
        state: STATE_DIRECTORY of the node.
        programs: runs nvidia-smi.

    Raises:
        OrderFailedError: DEVICE_FAILED: a limit cannot be set, or the file cannot be read; DRIVER_MISMATCH.
    """
    kept = _read_kept(state / FILE)
    if kept is None:
        return OrderResult(reason=Reason.DONE, message="")
    smi = find_smi(state / "drivers" / VENDOR / "current", programs)
    if smi is None:
        raise _limit_failure(state, "the driver on the node has no nvidia-smi to set them with")
    present = {gpu.uuid for gpu in smi.read_report().gpus}
    wanted = {uuid: watts for uuid, watts in sorted(kept.watts.items()) if uuid in present}
    outputs = {uuid: smi.run("-i", uuid, "-pl", f"{watts:g}").one_line for uuid, watts in wanted.items()}
    if wrong := _find_wrong_limits(wanted, smi):
        faults = (f"{uuid}: {has} instead of {wanted[uuid]:g} W ({outputs[uuid][:200]})" for uuid, has in wrong.items())
        raise _limit_failure(state, "; ".join(faults))
    (state / FILE).unlink()
    limits = describe_limits(wanted)
    return OrderResult(reason=Reason.DONE, message=f"power limits set again: {limits}", facts={"power limits": limits})


def find_set_limits(gpus: Sequence[GpuFacts]) -> dict[str, float]:
    """The power limits that differ from the default of their GPU, by its UUID, in watts."""
    pairs = {gpu.uuid: (parse_watts(gpu.power_limit), parse_watts(gpu.default_power_limit)) for gpu in gpus}
    return {uuid: limit for uuid, (limit, default) in pairs.items() if limit and default and limit != default}


def parse_watts(text: str) -> float | None:
    """The number of `500.00 W`; None if it is no such text."""
    number, _, unit = text.partition(" ")
    whole, point, digits = number.partition(".")
    if unit != "W" or not whole.isdecimal() or (point and not digits.isdecimal()) or len(number) > len("99999.99"):
        return None
    return float(number)


def describe_limits(watts: Mapping[str, float]) -> str:
    """How many GPUs have each limit."""
    counts = {limit: sum(other == limit for other in watts.values()) for limit in sorted(set(watts.values()))}
    return ", ".join(f"{count} x {limit:g} W" for limit, count in counts.items()) or "none"


def _find_wrong_limits(wanted: Mapping[str, float], smi: SmiProgram) -> dict[str, str]:
    """The reported limit of each GPU that does not have the wanted one."""
    reported = {gpu.uuid: gpu.power_limit for gpu in smi.read_report().gpus}
    return {
        uuid: reported.get(uuid) or "none reported"
        for uuid, watts in wanted.items()
        if (limit := parse_watts(reported.get(uuid, ""))) is None or abs(limit - watts) > _TOLERANCE
    }


def _read_kept(path: Path) -> KeptLimits | None:
    try:
        return untrusted.decode_json(path.read_bytes(), KeptLimits)
    except FileNotFoundError:
        return None
    except UnreadableError as error:
        raise _limit_failure(path.parent, f"they cannot be read ({error})") from error


def _limit_failure(state: Path, why: str) -> OrderFailedError:
    accepted = f"to accept the present limits, delete {state / FILE} on the node"
    return OrderFailedError(Reason.DEVICE_FAILED, f"the power limits of GPUs are not set again: {why}; {accepted}")
