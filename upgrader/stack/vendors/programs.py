"""Types that describe the operands of a vendor."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.vendors import VendorFacts
from upgrader.core.node_protocol.gpu_features import GpuReport

CONFIG = "/config"
"""Folder with the `config` of a program as config.yaml. It is a downward API volume, so that no ConfigMap is
required.
"""


class Mount(Struct, frozen=True, kw_only=True):
    """A folder of the node in the container; `at` is the path in the container and defaults to `path`."""

    name: str
    path: str
    at: str = ""
    read_only: bool = False
    propagates: bool = False  # mounts below it in the container are propagated to the node, and stay


class OperandProgram(Struct, frozen=True, kw_only=True):
    """A container of an operand.

    Args:
        command: command of the container. Empty means that of the image.
        init_programs: programs of the same image that run to completion before it, by name.
        sidecars: sidecars of the same image, by name; they are ready before it starts and end after it.
        report_command: command that runs before it, once per boot, and writes the report of the operand as its
            termination message. Empty means no command.
        node_variable: environment variable for the name of the node. Empty means none.
        pod_variable: environment variable for the UID of the pod. Empty means none.
        config: contents of CONFIG/config.yaml. Empty means no file.
        probe: command that exits with code 0 while the program is ready. Empty means ready while it runs.
        port: port of its HTTP server, whose readiness path is `health`. 0 means no server.
        awaited: whether a node upgrade waits for it; its server is then probed every second until the first success.
        capabilities: its capabilities, if it is not privileged. None means the default of the container runtime.
        requests: resource requests for CPU and memory.
        runtime_class: RuntimeClass of its pod. Empty means the default.
        grace_seconds: termination grace period of its pod, in seconds. 0 means the default of operands.
        done_file: file on the node that exists, on this boot, when later operands may start.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    init_programs: "Mapping[str, OperandProgram]" = {}
    sidecars: "Mapping[str, OperandProgram]" = {}
    report_command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    node_variable: str = ""
    pod_variable: str = ""
    config: str = ""
    mounts: tuple[Mount, ...] = ()
    probe: tuple[str, ...] = ()
    port: int = 0
    health: str = "/health"
    awaited: bool = False
    privileged: bool = False
    capabilities: tuple[str, ...] | None = None
    requests: Mapping[str, str] = {}
    host_pid: bool = False
    runtime_class: str = ""
    grace_seconds: int = 0
    done_file: str = ""

    @property
    def all_mounts(self) -> tuple[Mount, ...]:
        """The mounts of the program and of its init containers and sidecars."""
        programs = (*self.init_programs.values(), *self.sidecars.values())
        return (*self.mounts, *(mounted for program in programs for mounted in program.mounts))


class Vendor(Struct, frozen=True, kw_only=True):
    """The operands of a vendor, and the facts on it that rules use.

    `image_checks`: programs that check, before an upgrade, that an image is on the node, runs there and accepts the
    options that it is started with; without settings, only that it runs. `nondisruptive`: programs of the
    non-disruptive operands of the vendor. `labels`: labels of a node from the report of its feature discovery and the
    number of devices as which each GPU is offered (0: not shared), for a discovery that cannot label its node itself.
    """

    facts: VendorFacts
    runtime: Callable[[PluginSettings], OperandProgram]
    plugin: Callable[[PluginSettings], OperandProgram]
    image_checks: Mapping[Operand, Callable[[PluginSettings | None], OperandProgram]]
    nondisruptive: Mapping[Operand, Callable[[PluginSettings], OperandProgram]] = {}
    labels: Callable[[GpuReport, int], Mapping[str, str]] | None = None
