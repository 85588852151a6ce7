"""The order of operands on a node: each waits for earlier managed operands by a file that they write. Pure."""

from collections.abc import Container

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.stack.containers import Before, driver_done
from upgrader.stack.vendors import VENDORS


def hook_left(plugin: PluginSettings) -> str:
    """The file that a runtime hook writes when it is done; it stays when the hook is off."""
    return VENDORS[plugin.vendor].runtime(plugin).done


def before(operand: Operand, plugin: PluginSettings, ours: Container[Operand]) -> tuple[Before, ...]:
    """The operands that start before this one, in order.

    Args:
        operand: the operand that waits.
        plugin: settings of the device plugin, with the vendor of the operands.
        ours: operands that the stack manages. No operand waits for others, since their state is unknown.
    """
    found = [Before(Operand.DRIVER, driver_done(plugin.driver_vendor))]
    vendor = VENDORS[plugin.vendor]
    programs = {Operand.RUNTIME: vendor.runtime, Operand.DEVICE_PLUGIN: vendor.plugin, **vendor.quiet}
    for one in Operand:
        if one is operand:
            break
        file = programs[one](plugin).done if one in ours and one in programs else ""
        found += [Before(one, file)] if file else []
    return tuple(found) if operand is not Operand.DRIVER else ()
