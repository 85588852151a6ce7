"""Parameters of the driver's kernel modules on the node: written for the next load, known to an image, in force."""

from collections.abc import Mapping
from pathlib import Path

from upgrader.core.node_protocol.module_parameters import parameters_file, render_parameters, split_name
from upgrader.core.node_protocol.orders import ModuleParameters
from upgrader.node.host.host import Host
from upgrader.node.host.text_files import read_optional
from upgrader.process.atomic_file import write_file

NVIDIA_PREFIX = "NVreg_"
"""Of parameters of the module nvidia, which are not in /sys; /proc/driver/nvidia/params has them without the prefix."""

SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
"""Names there that differ from the parameter's (nv-reg.h of driver 535)."""

_FLAGS = {"Y": "1", "N": "0"}


def write_parameters(parameters: ModuleParameters, host: Host) -> None:
    """Write the file that the driver image reads when it loads the modules; without parameters there is none."""
    path = host.path(parameters_file(parameters.vendor))
    if parameters.values:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, render_parameters(parameters.values).encode())
    else:
        path.unlink(missing_ok=True)


def describe_parameters(values: Mapping[str, str]) -> str:
    """The parameters, for messages."""
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


def unknown_parameters(values: Mapping[str, str], known: Mapping[str, frozenset[str] | None]) -> str:
    """Why modules of a driver image reject parameters; empty if they accept them.

    `known`: the parameters of each module of the image; None if its manifest does not list them.
    """
    faults = []
    for name in sorted(values):
        module, parameter = split_name(name)
        if module not in known:
            faults.append(f"{name}: the driver image has no module {module}")
        elif (parameters := known[module]) is not None and parameter not in parameters:
            faults.append(f"{name}: module {module} of the driver image has no parameter {parameter}")
    return "; ".join(faults)


def find_differences(values: Mapping[str, str], *, proc: Path, system: Path) -> list[str]:
    """The parameters that the loaded modules have not, as sentences. Those that the kernel does not show are left out.

    Args:
        values: the expected parameters.
        proc: /proc of the node.
        system: /sys of the node.
    """
    faults = []
    for name, value in sorted(values.items()):
        present = _read_parameter(*split_name(name), proc, system)
        if present is not None and _plain_value(present) != _plain_value(value):
            faults.append(f"{name} is {present}, the stack requires {value}")
    return faults


def _read_parameter(module: str, parameter: str, proc: Path, system: Path) -> str | None:
    """The value in force; None if the kernel does not show it, or the module is not loaded."""
    file = system / "module" / module / "parameters" / parameter
    if file.exists():
        return read_optional(file)
    if module != "nvidia" or not parameter.startswith(NVIDIA_PREFIX):
        return None
    lines = (line.partition(":") for line in read_optional(proc / "driver/nvidia/params").splitlines())
    shown = parameter.removeprefix(NVIDIA_PREFIX)
    return {name.strip(): value.strip() for name, _, value in lines}.get(SHOWN_AS.get(shown, shown))


def _plain_value(value: str) -> str:
    """A value independent of its base and of quotation marks."""
    bare = value.strip('"')
    flag = _FLAGS.get(bare, bare)
    try:
        return str(int(flag, 0))
    except ValueError:
        return flag
