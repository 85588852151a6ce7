"""The operands of a stack: their order on a node, which of them change only in upgrades, and their state. Pure.

On each node an operand waits for those before it; one that is not ready blocks those after it, on that node only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec import Struct

from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.model.vendors import SIM


class Operand(StrEnum):
    """In the order in which they come up on a node; they are taken away the other way round."""

    DRIVER = "Driver"
    RUNTIME = "Runtime"
    DEVICE_PLUGIN = "DevicePlugin"
    FEATURE_DISCOVERY = "FeatureDiscovery"
    MONITORING = "Monitoring"


QUIET = frozenset({Operand.FEATURE_DISCOVERY, Operand.MONITORING})
"""They may roll by themselves, a few nodes at once: no job notices. The others change in upgrades only."""

COMPONENTS: Mapping[str, Operand] = {
    "driver": Operand.DRIVER,
    "runtime": Operand.RUNTIME,
    "device-plugin": Operand.DEVICE_PLUGIN,
    "feature-discovery": Operand.FEATURE_DISCOVERY,
    "monitoring": Operand.MONITORING,
}
"""By the value of the label that their pods carry."""


COMPONENT_OF = {operand: component for component, operand in COMPONENTS.items()}


class PluginSettings(Struct, frozen=True, kw_only=True):
    """What a device plugin is told, and by which its nodes are told apart: another value is another DaemonSet.

    `time_slices` and `mps_replicas`: as how many devices each one is offered, in turns or by MPS; 0 where it is not.
    `mps_runtime`: RuntimeClass that hands the driver's programs to who does that. `cdi`: it answers with names of CDI
    devices, which the runtime hook describes.
    """

    vendor: str
    driver_vendor: str
    resource_name: str
    time_slices: int = 0
    mps_replicas: int = 0
    mps_runtime: str = ""
    mig_strategy: str = ""
    cdi: bool = False

    @property
    def shares(self) -> int:
        """As how many devices each one is offered, however it is shared; 0 where it is not."""
        return self.time_slices or self.mps_replicas

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What is not as it has always been, as names and texts for the plugin's key."""
        return (
            ("vendor", "" if self.vendor == SIM else self.vendor),
            ("driver_vendor", "" if self.driver_vendor == self.vendor else self.driver_vendor),
            ("time_slices", str(self.time_slices) if self.time_slices else ""),
            ("mig_strategy", self.mig_strategy),
            ("cdi", "on" if self.cdi else ""),
            ("mps_replicas", str(self.mps_replicas) if self.mps_replicas else ""),
            ("mps_runtime", self.mps_runtime),
        )


class PartPod(Struct, frozen=True, kw_only=True):
    """A pod of what a stack runs on its nodes, there or missing; `trouble` is what keeps it from being ready.

    `silence`: where none of its containers has begun while its status says nothing of why, or where it is missing.
    """

    node: str
    ready: bool = False
    trouble: str = ""
    silence: Silence | None = None


class OperandPod(PartPod, frozen=True, kw_only=True):
    """A pod of an operand."""

    operand: Operand


class Standing(StrEnum):
    """How it stands with an operand, as one word."""

    READY = "Ready"
    WAITING = "Waiting"
    EXTERNAL = "External"
    NONE = "None"


class PartStanding(Struct, frozen=True, kw_only=True):
    """A part over all nodes of a stack: `ready` of `wanted` nodes have it; `message` names the first that do not."""

    state: Standing
    ready: int = 0
    wanted: int = 0
    message: str = ""

    @property
    def shown(self) -> str:
        """For a column: nodes that have it of those that should, or one word."""
        return f"{self.ready}/{self.wanted}" if self.wanted else self.state.value


class OperandStanding(PartStanding, frozen=True, kw_only=True):
    """The same of an operand.

    `blocked` are nodes where an operand before it is not ready: there nothing is wrong with this one itself.
    """

    operand: Operand
    blocked: int = 0


SHOWN = 3
NO_POD = "no pod of it is there"


def beside(wanted: Iterable[str], pods: Iterable[PartPod]) -> PartStanding:
    """A part that waits for no operand on its node, and none for it.

    Args:
        wanted: nodes that should have it.
        pods: its pods that have not ended, or are missing; where a node has several, the ready one counts.
    """
    best: dict[str, PartPod] = {}
    for pod in pods:
        if pod.node not in best or pod.ready:
            best[pod.node] = pod
    nodes = sorted(wanted)
    open_on = [node for node in nodes if node not in best or not best[node].ready]
    ready = len(nodes) - len(open_on)
    said = _few([f"{node}: {_why(best.get(node))}" for node in open_on])
    return PartStanding(state=_state(ready, len(nodes)), ready=ready, wanted=len(nodes), message=said)


def standings(
    managed: Mapping[Operand, bool],
    wanted: Mapping[Operand, frozenset[str]],
    pods: Iterable[OperandPod],
    faults: Mapping[Operand, str] = MappingProxyType({}),
) -> tuple[OperandStanding, ...]:
    """Every operand of a stack, in order.

    Args:
        managed: by operand, whether it is ours; one that is not is somebody else's and is never asked about.
        wanted: nodes that should have it.
        pods: those of the stack's nodes that have not ended; where a node has several of one, the ready one counts.
        faults: why an operand is not as the stack says, on any node.
    """
    best: dict[tuple[str, Operand], OperandPod] = {}
    for pod in pods:
        at = (pod.node, pod.operand)
        if at not in best or (pod.ready and not best[at].ready):
            best[at] = pod
    open_on: dict[str, Operand] = {}  # node -> the first operand that is not ready there
    found = []
    for operand in Operand:
        if not managed.get(operand, False):
            found.append(OperandStanding(operand=operand, state=Standing.EXTERNAL))
            continue
        one = _one(operand, sorted(wanted.get(operand, frozenset())), best, open_on)
        if fault := faults.get(operand):
            said = "; ".join(filter(None, (fault, one.message)))
            one = msgspec.structs.replace(one, state=Standing.WAITING, message=said)
        found.append(one)
    return tuple(found)


def _one(
    operand: Operand, nodes: list[str], best: Mapping[tuple[str, Operand], OperandPod], open_on: dict[str, Operand]
) -> OperandStanding:
    ready, blocked, own = 0, defaultdict[Operand, list[str]](list), list[str]()
    for node in nodes:
        pod = best.get((node, operand))
        if pod is not None and pod.ready:
            ready += 1
        elif node in open_on:
            blocked[open_on[node]].append(node)
        else:
            open_on[node] = operand
            own.append(f"{node}: {_why(pod)}")
    said = [f"blocked by {first.value} on {_few(at)}" for first, at in blocked.items()]
    if own:
        said.insert(0, _few(own))
    return OperandStanding(
        operand=operand,
        state=_state(ready, len(nodes)),
        ready=ready,
        wanted=len(nodes),
        blocked=sum(map(len, blocked.values())),
        message="; ".join(said),
    )


def _state(ready: int, wanted: int) -> Standing:
    return Standing.NONE if not wanted else Standing.READY if ready == wanted else Standing.WAITING


def _why(pod: PartPod | None) -> str:
    return NO_POD if pod is None else pod.trouble or "it is starting"


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
