"""Why this node is not upgraded, why this job is stopped: the forecast in sentences, most telling first."""

from msgspec import Struct

from upgrader.core.drift import NodeDrift
from upgrader.core.fleet import Gang, NodeFacts, Snapshot
from upgrader.core.forecast import BatchForecast, ClosureForecast, Forecast
from upgrader.core.losses import without_checkpoint
from upgrader.core.prediction import Harvest
from upgrader.core.timing import show


class Explanation(Struct, frozen=True, kw_only=True):
    """A subject, where it stands in one sentence, and everything that led there."""

    subject: str
    verdict: str
    because: tuple[str, ...] = ()


def why_node(
    name: str, snapshot: Snapshot, forecast: Forecast, *, already: frozenset[str] = frozenset()
) -> Explanation | None:
    """What becomes of a node and why; None where the stack does not select it."""
    node = next((node for node in snapshot.nodes if node.name == name), None)
    if node is None:
        return None
    found = next((one for one in forecast.drift if one.node == name), NodeDrift(node=name, findings=()))
    seen = [finding.message for finding in found.findings]
    if not found.drifted:
        verdict = f"Node {name} is on revision {forecast.revision} and needs nothing."
        return Explanation(subject=name, verdict=verdict, because=tuple(seen))
    if name in already:
        return Explanation(subject=name, verdict=_visited(node), because=tuple(seen))
    if name in forecast.installs:
        verdict = f"Node {name} gets its driver without a plan: nothing runs on it that could be lost."
        return Explanation(subject=name, verdict=verdict, because=tuple(seen))
    reaped = next((one for one in forecast.harvest if name in one.nodes), None)
    if reaped is not None:
        return Explanation(subject=name, verdict=_harvested(reaped, name), because=(*_ends(reaped), *seen))
    placed = _placed(forecast, node=name)
    if placed is None:
        reasons = [hold.message for hold in forecast.holds if name in hold.nodes]
        return Explanation(
            subject=name, verdict=f"Node {name} should be upgraded and is held.", because=(*reasons, *seen)
        )
    batch, closure = placed
    return Explanation(
        subject=name,
        verdict=f"Node {name} is upgraded in batch {batch.number} of {len(forecast.batches)}{_beside(closure, name)}.",
        because=(*_waits(batch), *seen, *_stops(closure)),
    )


def why_gang(name: str, snapshot: Snapshot, forecast: Forecast) -> Explanation | None:
    """What becomes of a gang and why; None where there is none of this name."""
    gang = next((gang for gang in snapshot.gangs if gang.name == name), None)
    if gang is None:
        return None
    size = f"{_count(len(gang.members), 'member')} with {_count(gang.gpus, 'GPU')}"
    runs = f"It has {size} on {_list(sorted(gang.nodes)) or 'no node'}."
    holds = [hold.message for hold in forecast.holds if hold.subject == name]
    placed = _placed(forecast, gang=name)
    if placed is not None:
        batch, closure = placed
        because = (*_waits(batch), runs, *_costs(name, forecast), *_visits(closure, gang, forecast))
        return Explanation(subject=name, verdict=_stopped(gang, batch), because=because)
    reaped = next((one for one in forecast.harvest if name in one.gangs), None)
    if reaped is not None:
        verdict = f"{name} is not stopped: it ends by itself, and its nodes are upgraded then."
        return Explanation(subject=name, verdict=verdict, because=(*_ends(reaped), runs))
    if holds:
        verdict = f"{name} is not stopped, and keeps its nodes from being upgraded."
        return Explanation(subject=name, verdict=verdict, because=(*holds, runs))
    beside = [hold.message for hold in forecast.holds if gang.nodes.intersection(hold.nodes)]
    if beside:
        verdict = f"{name} is not stopped now: its nodes are held by something else."
        return Explanation(subject=name, verdict=verdict, because=(*beside, runs))
    return Explanation(
        subject=name, verdict=f"{name} is not stopped: none of its nodes is to be visited.", because=(runs,)
    )


def find_gangs(snapshot: Snapshot, text: str) -> tuple[str, ...]:
    """Names of the gangs that somebody may mean: the whole name, `namespace/job`, or `job` alone."""
    names = sorted(gang.name for gang in snapshot.gangs)
    if text in names:
        return (text,)
    parted = [(name, *name.split("/", 2)) for name in names]
    return tuple(name for name, namespace, _, job in parted if text in {job, f"{namespace}/{job}"})


def _placed(forecast: Forecast, *, node: str = "", gang: str = "") -> tuple[BatchForecast, ClosureForecast] | None:
    for batch in forecast.batches:
        for closure in batch.closures:
            if node in closure.nodes or gang in closure.gangs or gang in closure.evicted:
                return batch, closure
    return None


def _visited(node: NodeFacts) -> str:
    if node.taken:
        return f"Node {node.name} is being visited by this plan."
    return f"Node {node.name} was visited by this plan and is not as the stack asks; see its NodeUpgrade."


def _harvested(reaped: Harvest, name: str) -> str:
    others = [node for node in reaped.nodes if node != name]
    beside = f", as are {_list(others)}" if others else ""
    return f"Node {name} is upgraded when its jobs have ended by themselves{beside}; nobody is asked."


def _ends(reaped: Harvest) -> list[str]:
    gangs = _list(list(reaped.gangs))
    return [f"{gangs} {'ends' if len(reaped.gangs) == 1 else 'end'} by {show(reaped.at)}, as far as is known."]


def _waits(batch: BatchForecast) -> list[str]:
    """What a batch waits for beyond those before it, and until when."""
    if not batch.waits_for or batch.starts_at is None:
        return []
    return [batch.waits_for, f"Batch {batch.number} starts at {show(batch.starts_at)}."]


def _costs(name: str, forecast: Forecast) -> list[str]:
    found = next((one for one in forecast.prediction.interruptions if one.gang == name), None)
    if found is None:
        return []
    pause = f"about {_count(-(-found.seconds // 60), 'minute')} without progress"
    return [f"It is asked at {show(found.asked_at)}; {pause} cost {found.lost_gpu_hours:.1f} GPU-hours."]


def _beside(closure: ClosureForecast, name: str) -> str:
    others = [node for node in closure.nodes if node != name]
    return f", together with {_list(others)}" if others else ""


def _stops(closure: ClosureForecast) -> list[str]:
    asked = [f"{gang} is asked for a checkpoint, stopped and restarted for it." for gang in closure.gangs]
    evicted = [f"Pods of {gang} on it are evicted; their owner makes them again elsewhere." for gang in closure.evicted]
    return asked + evicted or ["Nothing that uses GPUs runs there."]


def _stopped(gang: Gang, batch: BatchForecast) -> str:
    if gang.replicated:
        return f"Pods of {gang.name} are evicted in batch {batch.number}, where their nodes are upgraded."
    if without_checkpoint(gang):
        return f"{gang.name} is ended in batch {batch.number} without a checkpoint, as the approval allows."
    return f"{gang.name} is stopped once, in batch {batch.number}, after all its members acknowledged a checkpoint."


def _visits(closure: ClosureForecast, gang: Gang, forecast: Forecast) -> list[str]:
    reasons = {one.node: [finding.message for finding in one.findings if finding.counts] for one in forecast.drift}
    return [
        f"Node {node} is upgraded: {' '.join(reasons.get(node, []))}" for node in closure.nodes if node in gang.nodes
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
