"""The order of operands on a node: each waits for earlier managed operands by a file that they write. Pure."""

from collections.abc import Container

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.stack.operands.containers import EarlierOperand, driver_done_file
from upgrader.stack.vendors import find_vendor


def hook_done_file(plugin: PluginSettings) -> str:
    """The file that a runtime hook writes when it is done; the file remains after the hook is removed."""
    return find_vendor(plugin.vendor).runtime(plugin).done_file


def earlier_operands(
    operand: Operand, plugin: PluginSettings, managed: Container[Operand]
) -> tuple[EarlierOperand, ...]:
    """The operands that start before this one, in order.

    Args:
        operand: the operand that waits.
        plugin: settings of the device plugin, with the vendor of the operands.
        managed: operands that the stack manages. No operand waits for unmanaged ones, since their state is unknown.
    """
    earlier = [EarlierOperand(Operand.DRIVER, driver_done_file(plugin.driver_vendor))]
    vendor = find_vendor(plugin.vendor)
    programs = {Operand.RUNTIME: vendor.runtime, Operand.DEVICE_PLUGIN: vendor.plugin, **vendor.nondisruptive}
    for candidate in Operand:
        if candidate is operand:
            break
        file = programs[candidate](plugin).done_file if candidate in managed and candidate in programs else ""
        earlier += [EarlierOperand(candidate, file)] if file else []
    return tuple(earlier) if operand is not Operand.DRIVER else ()
