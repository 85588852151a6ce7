"""What a vendor says of its operands."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from upgrader.core.model.operands import Operand, PluginSettings

CONFIG = "/config"
"""Where a program finds its `config` as the file config.yaml. It comes by the downward API, so no ConfigMap is kept."""


class Mount(Struct, frozen=True, kw_only=True):
    """A folder of the node in the container, at the same path unless `at` says another."""

    name: str
    path: str
    at: str = ""
    read_only: bool = False
    propagates: bool = False  # what is mounted below it in the container is there on the node, and stays


class Program(Struct, frozen=True, kw_only=True):
    """A container of an operand.

    Args:
        command: empty: the image's own.
        first: programs of the same image that run to their end before it, by name.
        beside: programs of the same image that run as long as it does, by name; they are ready before it starts.
        reads: command that runs before it, once for each boot, and leaves what the operand found as its termination
            message; empty: there is none.
        node_variable: variable of the environment that gets the node's name; empty: none does.
        pod_variable: the same for the pod's uid.
        config: text of CONFIG/config.yaml; empty: there is no such file.
        probe: command that ends with 0 while it does its work; empty: it counts as ready while it runs.
        port: of its HTTP server, asked at `health` whether it is ready; 0: it has none.
        awaited: a node upgrade waits for it, so its server is asked every second until it is ready once.
        capabilities: all that it has, where it is not privileged; None: what the container runtime gives by itself.
        requests: CPU and memory that are set aside for it.
        runtime_class: RuntimeClass of its pod; empty: the default.
        grace: seconds that its pod has to end in order; 0: it has nothing to put back.
        done: file of the node that is there, on this boot, once the operands after it may start.
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
        """Its own, and those of the programs around it."""
        around = (*self.first.values(), *self.beside.values())
        return (*self.mounts, *(mounted for one in around for mounted in one.mounts))


class Vendor(Struct, frozen=True, kw_only=True):
    """The operands of a vendor.

    `proofs`: what preparing an upgrade runs to show that an image is on the node, runs there and takes the options that
    it would be started with; without settings, that it runs. `quiet`: what
    each quiet operand runs; one that the vendor does not have is left out.
    """

    runtime: Callable[[PluginSettings], Program]
    plugin: Callable[[PluginSettings], Program]
    proofs: Mapping[Operand, Callable[[PluginSettings | None], Program]]
    quiet: Mapping[Operand, Callable[[PluginSettings], Program]] = {}
