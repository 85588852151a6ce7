"""Parameters of a driver's kernel modules: names, and the file on a node that the driver image reads. Pure."""

from collections.abc import Mapping

from upgrader.core.node_protocol.node_places import STATE_DIRECTORY

PARAMETER_NAME = r"^[a-z0-9_]+[.][A-Za-z0-9_]+$"
"""`module.parameter`, as on a kernel command line; in CEL and Python. Modules are named as in /proc/modules."""


def parameters_file(vendor: str) -> str:
    """The path on a node of the file with a line `MODULE PARAMETER=VALUE` for each parameter of a vendor's driver."""
    return f"{STATE_DIRECTORY}/drivers/{vendor}/parameters"


def split_name(name: str) -> tuple[str, str]:
    """Module and parameter."""
    module, _, parameter = name.partition(".")
    return module, parameter


def render_parameters(parameters: Mapping[str, str]) -> str:
    """The contents of the file."""
    return "".join("{} {}={}\n".format(*split_name(name), value) for name, value in sorted(parameters.items()))
