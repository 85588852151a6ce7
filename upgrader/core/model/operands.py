"""The operands of a stack: their order on a node, those that change only in upgrades, and their state. Pure.

On each node an operand waits for those before it; an operand that is not ready blocks those after it, on that node.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec import Struct

from upgrader.core.model.pod_diagnostics import Silence


class Operand(StrEnum):
    """In the order in which they start on a node; they are removed in the opposite order."""

    DRIVER = "Driver"
    RUNTIME = "Runtime"
    DEVICE_PLUGIN = "DevicePlugin"
    FEATURE_DISCOVERY = "FeatureDiscovery"
    MONITORING = "Monitoring"


NONDISRUPTIVE = frozenset({Operand.FEATURE_DISCOVERY, Operand.MONITORING})
"""Operands that roll without an upgrade, a few nodes at the same time: their restart does not interrupt jobs."""

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
    """Settings of a device plugin, which separate its nodes: another value is another DaemonSet.

    `time_slices` and `mps_replicas`: number of devices as which each GPU is offered, by time slices or by MPS; 0: not
    shared. `mps_runtime`: RuntimeClass that gives the driver's programs to the MPS pods. `cdi`: it answers with names
    of CDI devices, which the runtime hook describes.
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
        """Number of devices as which each GPU is offered, by any kind of sharing; 0: not shared."""
        return self.time_slices or self.mps_replicas

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Settings that differ from the defaults, as names and texts for the plugin's key."""
        return (
            ("vendor", self.vendor),
            ("driver_vendor", "" if self.driver_vendor == self.vendor else self.driver_vendor),
            ("time_slices", str(self.time_slices) if self.time_slices else ""),
            ("mig_strategy", self.mig_strategy),
            ("cdi", "on" if self.cdi else ""),
            ("mps_replicas", str(self.mps_replicas) if self.mps_replicas else ""),
            ("mps_runtime", self.mps_runtime),
        )


class PartPod(Struct, frozen=True, kw_only=True):
    """A pod that a stack runs on a node, present or missing; `trouble` is why it is not ready.

    `silence`: given if none of its containers has begun and its status does not state why, or if it is missing.
    """

    node: str
    ready: bool = False
    trouble: str = ""
    silence: Silence | None = None


class OperandPod(PartPod, frozen=True, kw_only=True):
    """A pod of an operand."""

    operand: Operand


class OperandState(StrEnum):
    """The state of an operand, as one word."""

    READY = "Ready"
    WAITING = "Waiting"
    EXTERNAL = "External"
    NONE = "None"


class PartStanding(Struct, frozen=True, kw_only=True):
    """A part over all nodes of a stack: `ready` of `wanted` nodes have it; `message` names the first that do not."""

    state: OperandState
    ready: int = 0
    wanted: int = 0
    message: str = ""

    @property
    def shown(self) -> str:
        """For a column: nodes that have it, of the nodes that should, or one word."""
        return f"{self.ready}/{self.wanted}" if self.wanted else self.state.value


class OperandStanding(PartStanding, frozen=True, kw_only=True):
    """The same of an operand.

    `blocked` are nodes where an operand before it is not ready: there it has no fault of its own.
    """

    operand: Operand
    blocked: int = 0


SHOWN = 3
NO_POD = "it has no pod"


def part_standing(wanted: Iterable[str], pods: Iterable[PartPod]) -> PartStanding:
    """The standing of a part that waits for no operand on its node, and for which no operand waits.

    Args:
        wanted: nodes that should have it.
        pods: its pods that have not ended, or are missing; if a node has several, the ready one counts.
    """
    best: dict[str, PartPod] = {}
    for pod in pods:
        if pod.node not in best or pod.ready:
            best[pod.node] = pod
    nodes = sorted(wanted)
    open_on = [node for node in nodes if node not in best or not best[node].ready]
    ready = len(nodes) - len(open_on)
    message = _name_first([f"{node}: {_explain_pod(best.get(node))}" for node in open_on])
    return PartStanding(state=_standing_state(ready, len(nodes)), ready=ready, wanted=len(nodes), message=message)


def operand_standings(
    managed: Mapping[Operand, bool],
    wanted: Mapping[Operand, frozenset[str]],
    pods: Iterable[OperandPod],
    faults: Mapping[Operand, str] = MappingProxyType({}),
) -> tuple[OperandStanding, ...]:
    """The standing of every operand of a stack, in order.

    Args:
        managed: by operand, whether the stack manages it; an operand that is not managed is never checked.
        wanted: nodes that should have it.
        pods: those on the stack's nodes that have not ended; if a node has several of an operand, the ready one counts.
        faults: why an operand differs from the stack, on any node.
    """
    best: dict[tuple[str, Operand], OperandPod] = {}
    for pod in pods:
        at = (pod.node, pod.operand)
        if at not in best or (pod.ready and not best[at].ready):
            best[at] = pod
    open_on: dict[str, Operand] = {}  # node -> the first operand that is not ready there
    standings = []
    for operand in Operand:
        if not managed.get(operand, False):
            standings.append(OperandStanding(operand=operand, state=OperandState.EXTERNAL))
            continue
        standing = _operand_standing(operand, sorted(wanted.get(operand, frozenset())), best, open_on)
        if fault := faults.get(operand):
            message = "; ".join(filter(None, (fault, standing.message)))
            standing = msgspec.structs.replace(standing, state=OperandState.WAITING, message=message)
        standings.append(standing)
    return tuple(standings)


def _operand_standing(
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
            own.append(f"{node}: {_explain_pod(pod)}")
    messages = [f"blocked by {first.value} on {_name_first(at)}" for first, at in blocked.items()]
    if own:
        messages.insert(0, _name_first(own))
    return OperandStanding(
        operand=operand,
        state=_standing_state(ready, len(nodes)),
        ready=ready,
        wanted=len(nodes),
        blocked=sum(map(len, blocked.values())),
        message="; ".join(messages),
    )


def _standing_state(ready: int, wanted: int) -> OperandState:
    return OperandState.NONE if not wanted else OperandState.READY if ready == wanted else OperandState.WAITING


def _explain_pod(pod: PartPod | None) -> str:
    return NO_POD if pod is None else pod.trouble or "it is starting"


def _name_first(texts: list[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
