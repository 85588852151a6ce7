"""Explanation of a gang: whether it is stopped, its members, its switch, its declarations, its blockers."""

from upgrader.core import timing
from upgrader.core.explain.node_explanation import Explanation, count_with_noun, describe_wait, placed_in
from upgrader.core.forecast.forecast import BatchForecast, Forecast, GroupForecast
from upgrader.core.forecast.interruption_cost import without_checkpoint
from upgrader.core.model.fleet import Gang, Owner, Snapshot
from upgrader.core.naming import list_names
from upgrader.core.workloads.owner_kinds import OwnerKind, Switch, owner_kind

WAYS = {
    Switch.SUSPEND: "A stop suspends {owner}; a restart resumes it.",
    Switch.DEACTIVATE: "A stop deactivates {owner} of Kueue; a restart activates it.",
    Switch.REPLICAS: "A stop sets the replicas of {owner} to 0; a restart sets them as before.",
    Switch.COMMAND: "A stop and a restart are Commands of Volcano for {owner}.",
}
"""How a gang is stopped, by the switch of its owner."""


def why_gang(name: str, snapshot: Snapshot, forecast: Forecast) -> Explanation | None:
    """What happens to a gang and why; None if there is no gang of this name."""
    gang = next((gang for gang in snapshot.gangs if gang.name == name), None)
    if gang is None:
        return None
    verdict, reasons = _gang_fate(gang, forecast)
    return Explanation(
        subject=name,
        verdict=verdict,
        because=(*reasons, *_describe_members(gang), *_describe_switch(gang), *_describe_declarations(gang)),
    )


def find_gangs(snapshot: Snapshot, text: str) -> tuple[str, ...]:
    """Names of the gangs that a user's text may refer to.

    The text is a gang's whole name, `namespace/job`, or `job` alone, where `job` is the gang itself, any owner of its
    pods (a Job, the JobSet or TrainJob above it), or one of the pods.
    """
    gangs = {gang.name: gang for gang in snapshot.gangs}
    if text in gangs:
        return (text,)
    return tuple(sorted(name for name, gang in gangs.items() if text in _known_as(gang)))


def _known_as(gang: Gang) -> frozenset[str]:
    names = {gang.name.split("/", 2)[2], *(owner.name for owner in gang.owners)}
    names |= {gang.owner.name} if gang.owner is not None else set()
    names |= {member.pod for member in gang.members}
    return frozenset(names | {f"{gang.namespace}/{name}" for name in names})


def _gang_fate(gang: Gang, forecast: Forecast) -> tuple[str, tuple[str, ...]]:
    """What happens to a gang, and the reasons."""
    placed = placed_in(forecast, gang=gang.name)
    if placed is not None:
        batch, group = placed
        return _describe_stop(gang, batch), (
            *describe_wait(batch),
            *_expected_cost(gang, forecast),
            *_upgrade_reasons(group, gang, forecast),
        )
    completion = next((candidate for candidate in forecast.completions if gang.name in candidate.gangs), None)
    if completion is not None:
        taken = f"Nodes {list_names(sorted(completion.nodes))} are upgraded when it has ended."
        return f"{gang.name} is not stopped: it is expected to end by {timing.format_time(completion.at)}.", (taken,)
    blockers = tuple(blocker.message for blocker in forecast.blockers if blocker.subject == gang.name)
    if blockers:
        return f"{gang.name} is not stopped, and blocks the upgrade of its nodes.", blockers
    beside = tuple(blocker.message for blocker in forecast.blockers if gang.nodes.intersection(blocker.nodes))
    if beside:
        return f"{gang.name} is not stopped now: its nodes have other blockers.", beside
    return f"{gang.name} is not stopped: none of its nodes is to be upgraded.", ()


def _describe_stop(gang: Gang, batch: BatchForecast) -> str:
    if gang.replicated:
        return f"Pods of {gang.name} are evicted in batch {batch.number}, when their nodes are upgraded."
    if without_checkpoint(gang):
        return f"{gang.name} is ended in batch {batch.number} without a checkpoint, as the approval allows."
    who = "its leader" if gang.terms.ack_scope == "leader" else "all its members"
    return f"{gang.name} is stopped once, in batch {batch.number}, after {who} acknowledged a checkpoint."


def _expected_cost(gang: Gang, forecast: Forecast) -> list[str]:
    return [
        (
            f"Its request is expected at {timing.format_time(stop.asked_at)}, with a pause of "
            f"{round(stop.seconds / 60)} min, which costs {stop.lost_gpu_hours:.1f} GPU-hours."
        )
        for stop in forecast.prediction.interruptions
        if stop.gang == gang.name
    ]


def _upgrade_reasons(group: GroupForecast, gang: Gang, forecast: Forecast) -> list[str]:
    reasons = {node.node: [finding.message for finding in node.findings if finding.counts] for node in forecast.drift}
    return [f"Node {node} is upgraded: {' '.join(reasons.get(node, []))}" for node in group.nodes if node in gang.nodes]


def _describe_members(gang: Gang) -> list[str]:
    count = count_with_noun(len(gang.members), "member")
    sentences = [
        f"It has {count} with {count_with_noun(gang.gpus, 'GPU')} on {list_names(sorted(gang.nodes)) or 'no node'}."
    ]
    if gang.resolved_by:
        which = (
            "Its only pod forms a gang by"
            if len(gang.members) == 1
            else f"Its {len(gang.members)} pods belong together"
        )
        sentences.append(f"{which}: {gang.resolved_by}.")
    if gang.owners:
        sentences.append(f"Its owners: {list_names([f'{owner.kind} {owner.name}' for owner in gang.owners])}.")
    return sentences


def _describe_switch(gang: Gang) -> list[str]:
    row = _owner_row(gang.owner)
    if gang.owner is not None and row is not None and not gang.replicated:
        return [WAYS[row.switch].format(owner=f"{gang.owner.kind} {gang.owner.name}")]
    return [gang.cannot_stop] if gang.cannot_stop else []


def _owner_row(owner: Owner | None) -> OwnerKind | None:
    return owner_kind(owner.kind, owner.api_version) if owner is not None else None


def _describe_declarations(gang: Gang) -> list[str]:
    """The declarations of a gang that are used."""
    sentences = []
    if gang.terms.methods:
        longest = f"; one checkpoint may take {_show_minutes(gang.timeout_seconds)}" if gang.timeout_seconds else ""
        sentences.append(f"Its checkpoint methods: {', then '.join(gang.terms.methods)}{longest}.")
    if gang.earliest_stop is not None:
        sentences.append(
            f"It is not stopped before {timing.format_time(gang.earliest_stop)}: "
            f"it runs for {_show_minutes(gang.min_runtime_seconds)} at least."
        )
    if gang.ends_at is not None:
        sentences.append(f"It is expected to end by {timing.format_time(gang.ends_at)}.")
    if gang.terms.max_loss_seconds:
        sentences.append(f"Work of {_show_minutes(gang.terms.max_loss_seconds)} may be lost.")
    if gang.lane:
        sentences.append(f"Its checkpoints go through {gang.lane_shown}.")
    return sentences


def _show_minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} min"
