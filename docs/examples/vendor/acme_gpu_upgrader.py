"""A third vendor for upgrader, as an example: devices acme.example/gpu, and a driver of recipe acme."""

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.vendors import RecipeDriver, VendorFacts
from upgrader.stack.vendors import Mount, OperandProgram, Vendor

SOCKETS = Mount(name="sockets", path="/var/lib/kubelet/device-plugins")


def hook_program(settings: PluginSettings) -> OperandProgram:
    """The runtime hook: it writes a CDI specification and then its done file."""
    del settings
    return OperandProgram(
        command=("acme-hook",), mounts=(Mount(name="cdi", path="/etc/cdi"),), done_file="/etc/cdi/acme.json"
    )


def plugin_program(settings: PluginSettings) -> OperandProgram:
    """The device plugin; its readiness endpoint answers after it has registered with the kubelet."""
    command = ("acme-device-plugin", "--resource", settings.resource_name)
    return OperandProgram(command=command, mounts=(SOCKETS,), port=8080, health="/ready", awaited=True)


def check_program(settings: PluginSettings | None) -> OperandProgram:
    """The program that checks, before an upgrade, that an image runs on the node."""
    del settings
    return OperandProgram(command=("acme-device-plugin", "--version"))


VENDOR = Vendor(
    facts=VendorFacts(
        name="acme", recipes={"acme": RecipeDriver(vendor="acme")}, present=("acme.example/gpu.present",)
    ),
    runtime=hook_program,
    plugin=plugin_program,
    image_checks={Operand.RUNTIME: check_program, Operand.DEVICE_PLUGIN: check_program},
)
