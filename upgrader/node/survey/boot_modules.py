"""What would load another driver for the GPUs, now or at the next boot, and module parameters that would be lost."""

from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.node.host.pci import NVIDIA
from upgrader.node.survey.modprobe import (
    find_claiming_modules,
    find_module_files,
    read_boot_modules,
    read_modprobe_settings,
)
from upgrader.node.survey.surveyed_node import SurveyedNode, make_problem, make_warning

NOUVEAU = "nouveau"
_INITRAMFS = "rebuild the initramfs (update-initramfs -u -k all, or dracut -f --regenerate-all)"
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def check_nouveau(node: SurveyedNode) -> Iterator[Advice]:
    """The kernel's own driver of NVIDIA's GPUs: while it is loaded, it has the devices."""
    if node.scope.vendor == "nvidia" and (node.system / "module" / NOUVEAU).is_dir():
        yield make_problem(
            SurveyCheck.NOUVEAU,
            f"module {NOUVEAU}",
            "is loaded and has the GPUs, so that the kernel would reject the driver's modules",
            f"echo 'blacklist {NOUVEAU}' > /etc/modprobe.d/{NOUVEAU}.conf, {_INITRAMFS}, and reboot",
        )


def check_boot(node: SurveyedNode) -> Iterator[Advice]:
    """Modules that the node would load at a boot before the driver image loads its own."""
    if node.scope.vendor != "nvidia":
        return
    folder = node.host.path(f"/lib/modules/{node.kernel}")
    settings = read_modprobe_settings(node.host, NVIDIA_PREFIX)
    listed = read_boot_modules(node.host)
    claims = find_claiming_modules(folder, (device.alias for device in node.pci_devices if device.vendor == NVIDIA))
    files = find_module_files(folder, NVIDIA_PREFIX)
    for name in sorted(name for name in listed if name == NOUVEAU or name.startswith(NVIDIA_PREFIX)):
        yield make_problem(
            SurveyCheck.DRIVER_AT_BOOT,
            f"module {name}",
            f"{listed[name]} loads it at each boot",
            f"Remove it from {listed[name]}, and {_INITRAMFS}.",
        )
    for name in sorted(_gpu_drivers(claims) - settings.blacklisted - listed.keys()):
        source = f"/lib/modules/{node.kernel}/{files[name]}" if name in files else f"the kernel {node.kernel}"
        yield make_problem(
            SurveyCheck.DRIVER_AT_BOOT,
            f"module {name}",
            f"{source} claims the GPUs, and is loaded at the next boot before the driver image",
            f"Remove the package that installs it, or: echo 'blacklist {name}' > /etc/modprobe.d/{name}.conf, and "
            f"{_INITRAMFS}.",
        )
    for name in sorted(files.keys() & settings.blacklisted & claims):
        yield make_warning(
            SurveyCheck.DRIVER_AT_BOOT,
            f"module {name}",
            f"/lib/modules/{node.kernel}/{files[name]} is blacklisted; programs that load it by name, such as "
            "nvidia-modprobe, still would",
            "Remove the package that installs it.",
        )


def check_parameters(node: SurveyedNode) -> Iterator[Advice]:
    """Parameters for modprobe: a driver image loads its modules from files, with the parameters of the stack only."""
    if node.scope.vendor != "nvidia" or not node.scope.swaps_driver:
        return
    for path, line in read_modprobe_settings(node.host, NVIDIA_PREFIX).parameters:
        yield make_warning(
            SurveyCheck.MODULE_PARAMETERS,
            f"parameters {line}",
            f"set in {path}, and not in force after an upgrade: a driver image does not use modprobe",
            "Set those that jobs need in spec.driver.parameters of the stack; compare with /proc/driver/nvidia/params.",
        )


def check_libraries(node: SurveyedNode) -> Iterator[Advice]:
    """Libraries of a driver that packages of the node have installed."""
    if node.scope.vendor != "nvidia":
        return
    for folder in _LIBRARIES:
        place = node.host.path(folder)
        names = sorted(file.name for file in place.glob("libnvidia-ml.so.*.*")) if place.is_dir() else []
        if names:
            yield make_warning(
                SurveyCheck.HOST_LIBRARIES,
                f"{folder}/{names[0]}",
                "a driver's library of a package of the node: programs that use it fail with another version of the "
                "kernel module (driver/library version mismatch)",
                "Remove the packages of the driver; the driver image brings its own libraries.",
            )


NVIDIA_PREFIX = "nvidia"


def _gpu_drivers(names: frozenset[str]) -> set[str]:
    """Modules among these that drive GPUs."""
    return {name for name in names if name == NOUVEAU or name.startswith(NVIDIA_PREFIX)}
