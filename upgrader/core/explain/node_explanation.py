"""Explanation of a node: the forecast in sentences, the most important first. Jobs: see gang_explanation."""

from msgspec import Struct

from upgrader.core.forecast.forecast import BatchForecast, Forecast, GroupForecast
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.fleet import NodeFacts, Snapshot
from upgrader.core.model.prediction import Completion
from upgrader.core.naming import list_names
from upgrader.core.timing import format_time


class Explanation(Struct, frozen=True, kw_only=True):
    """A subject, what happens to it in one sentence, and the reasons."""

    subject: str
    verdict: str
    because: tuple[str, ...] = ()


def why_node(
    name: str, snapshot: Snapshot, forecast: Forecast, *, already: frozenset[str] = frozenset()
) -> Explanation | None:
    """What happens to a node and why; None if the stack does not select it."""
    node = next((node for node in snapshot.nodes if node.name == name), None)
    if node is None:
        return None
    drift = next((entry for entry in forecast.drift if entry.node == name), NodeDrift(node=name, findings=()))
    seen = [finding.message for finding in drift.findings]
    if not drift.drifted:
        verdict = f"Node {name} is on revision {forecast.revision} and needs no upgrade."
        return Explanation(subject=name, verdict=verdict, because=tuple(seen))
    if name in already:
        return Explanation(subject=name, verdict=_describe_upgrade(node), because=tuple(seen))
    if name in forecast.installs:
        verdict = f"Node {name} gets its driver without a plan: no work on it can be lost."
        return Explanation(subject=name, verdict=verdict, because=tuple(seen))
    completion = next((candidate for candidate in forecast.completions if name in candidate.nodes), None)
    if completion is not None:
        return Explanation(
            subject=name, verdict=_describe_completion(completion, name), because=(*describe_end(completion), *seen)
        )
    placed = placed_in(forecast, node=name)
    if placed is None:
        reasons = [blocker.message for blocker in forecast.blockers if name in blocker.nodes]
        return Explanation(
            subject=name, verdict=f"Node {name} should be upgraded and is blocked.", because=(*reasons, *seen)
        )
    batch, group = placed
    siblings = _describe_siblings(group, name)
    return Explanation(
        subject=name,
        verdict=f"Node {name} is upgraded in batch {batch.number} of {len(forecast.batches)}{siblings}.",
        because=(*describe_wait(batch), *seen, *_describe_stops(group)),
    )


def placed_in(forecast: Forecast, *, node: str = "", gang: str = "") -> tuple[BatchForecast, GroupForecast] | None:
    """The batch and the group of a node or a gang."""
    for batch in forecast.batches:
        for group in batch.groups:
            if node in group.nodes or gang in group.gangs or gang in group.evicted:
                return batch, group
    return None


def _describe_upgrade(node: NodeFacts) -> str:
    if node.taken:
        return f"Node {node.name} is being upgraded by this plan."
    return f"Node {node.name} was upgraded by this plan and differs from the stack; see its NodeUpgrade."


def _describe_completion(completion: Completion, name: str) -> str:
    others = [node for node in completion.nodes if node != name]
    beside = f", as are {list_names(others)}" if others else ""
    return f"Node {name} is upgraded when its jobs have ended{beside}; no gang gets a request."


def describe_end(completion: Completion) -> list[str]:
    """When the gangs that are waited for end by themselves."""
    gangs = list_names(list(completion.gangs))
    return [f"{gangs} {'ends' if len(completion.gangs) == 1 else 'end'} by {format_time(completion.at)} (estimated)."]


def describe_wait(batch: BatchForecast) -> list[str]:
    """What a batch waits for beside the batches before it, and until when."""
    if not batch.waits_for or batch.starts_at is None:
        return []
    return [batch.waits_for, f"Batch {batch.number} starts at {format_time(batch.starts_at)}."]


def _describe_siblings(group: GroupForecast, name: str) -> str:
    others = [node for node in group.nodes if node != name]
    return f", together with {list_names(others)}" if others else ""


def _describe_stops(group: GroupForecast) -> list[str]:
    asked = [f"{gang} gets a checkpoint request, is stopped and restarted for it." for gang in group.gangs]
    evicted = [
        f"Pods of {gang} on it are evicted; their owner creates them again on other nodes." for gang in group.evicted
    ]
    sentences = asked + evicted or ["Nothing that uses GPUs runs there."]
    ways = (
        f"{list_names(list(names))} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in (
            (group.rebooted, "rebooted"),
            (group.perhaps_rebooted, "rebooted if the driver cannot be unloaded"),
            (group.reconfigured, "reconfigured with other kubelet settings"),
        )
        if names
    )
    if emptied := " and ".join(ways):
        sentences.append(f"{emptied}; {count_with_noun(group.other_pods, 'pod')} without GPUs end too.")
    return sentences


def count_with_noun(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
