"""Types that describe the operands of a vendor."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from upgrader.core.model.operands import Operand, PluginSettings

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


class Program(Struct, frozen=True, kw_only=True):
    """A container of an operand.

    Args:
        command: command of the container. Empty means that of the image.
        first: programs of the same image that run to completion before it, by name.
        beside: sidecars of the same image, by name; they are ready before it starts and end after it.
        reads: command that runs before it, once per boot, with the findings of the operand as its termination message.
            Empty means no command.
        node_variable: environment variable for the name of the node. Empty means none.
        pod_variable: environment variable for the UID of the pod. Empty means none.
        config: contents of CONFIG/config.yaml. Empty means no file.
        probe: command that exits with code 0 while the program is ready. Empty means ready while it runs.
        port: port of its HTTP server, whose readiness path is `health`. 0 means no server.
        awaited: whether a node upgrade waits for it; its server is then probed every second until the first success.
        capabilities: its capabilities, if it is not privileged. None means the default of the container runtime.
        requests: resource requests for CPU and memory.
        runtime_class: RuntimeClass of its pod. Empty means the default.
        grace: termination grace period of its pod, in seconds. 0 means the default of operands.
        done: file on the node that exists, on this boot, when later operands may start.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    first: "Mapping[str, Program]" = {}
    beside: "Mapping[str, Program]" = {}
    reads: tuple[str, ...] = ()
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
    grace: int = 0
    done: str = ""

    @property
    def all_mounts(self) -> tuple[Mount, ...]:
        """The mounts of the program and of its init containers and sidecars."""
        around = (*self.first.values(), *self.beside.values())
        return (*self.mounts, *(mounted for one in around for mounted in one.mounts))


class Vendor(Struct, frozen=True, kw_only=True):
    """The operands of a vendor.

    `proofs`: programs that show, before an upgrade, that an image is on the node, runs there and accepts the options
    that it is started with; without settings, that it runs. `quiet`: programs of quiet operands that the vendor has.
    """

    runtime: Callable[[PluginSettings], Program]
    plugin: Callable[[PluginSettings], Program]
    proofs: Mapping[Operand, Callable[[PluginSettings | None], Program]]
    quiet: Mapping[Operand, Callable[[PluginSettings], Program]] = {}
