"""What each operand waits for on its node: those before it that are ours, each by a file that it leaves. Pure."""

from collections.abc import Container

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.stack.containers import Before, driver_done
from upgrader.stack.vendors import VENDORS


def hook_left(plugin: PluginSettings) -> str:
    """The file by which a runtime hook shows that it is done; it stays when the hook is off."""
    return VENDORS[plugin.vendor].runtime(plugin).done


def before(operand: Operand, plugin: PluginSettings, ours: Container[Operand]) -> tuple[Before, ...]:
    """The operands before this one, in order.

    Args:
        operand: the one that waits.
        plugin: what the device plugin is told, which says whose operands these are.
        ours: those that the stack manages. Nobody waits for others: when they are done is not ours to know.
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
