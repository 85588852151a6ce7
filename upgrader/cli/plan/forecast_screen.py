"""Text output of `upgrader plan`: batches, times, interruptions with their reasons, blockers with their resolutions.

Long lists show their first ten entries and the number of the others, so that the output for a fleet of thousands is
readable. `--output json` contains all entries.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from upgrader.cli.base import humanize
from upgrader.cli.base.render import count_things, empty_table, folded_table, list_names, show_change, titled_table
from upgrader.cli.plan import pace_screen
from upgrader.core.constraints.blockers import Blocker
from upgrader.core.explain.plan_file import SavedForecast, consented_loss
from upgrader.core.forecast.forecast import BatchForecast, Forecast, GroupForecast
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.prediction import Interruption
from upgrader.stack.vendors import find_vendor

NAMES = 3
"""Maximum number of names in one cell."""

_KINDS = {"Canary": "canary, no gang stopped", "Idle": "idle nodes, no gang stopped", "Asked": "gangs stopped"}


def forecast_tables(saved: SavedForecast) -> RenderableType:
    """The effects of a rollout, and the nodes that it leaves out, with reasons."""
    made = saved.forecast
    parts: list[RenderableType] = [_headline_text(saved), titled_table("Drift", _drift_summary(made.drift))]
    if made.batches:
        title = f"Batches, in order; times in {humanize.zone_name(made.made_at)}"
        parts.append(titled_table(title, _batch_table(made)))
    if made.completions:
        parts.append(
            titled_table(
                "Upgraded after completion of their jobs, without a checkpoint request", _completion_table(made)
            )
        )
    if made.prediction.interruptions:
        parts.append(titled_table("Interrupted gangs", _interruption_table(made)))
    if any(group.evicted for batch in made.batches for group in batch.groups):
        parts.append(
            titled_table(
                "Evicted within their PodDisruptionBudgets and recreated by their owners", _eviction_table(made)
            )
        )
    if made.blockers:
        parts.append(titled_table("Blockers, with resolutions", _blocker_table(made.blockers)))
    return Group(*parts, Padding(_summary_text(saved), (1, 0, 0, 0)))


def _headline_text(saved: SavedForecast) -> Text:
    made = saved.forecast
    lines = [f"Stack {saved.stack} → revision {saved.revision}"]
    for origin in saved.origins[:NAMES]:
        where = f"revision {origin.revision}" if origin.revision else "no revision of this stack"
        swapped = ", ".join(f"{change.what} {show_change(change.before, change.after)}" for change in origin.changes)
        lines.append(f"  {count_things(origin.nodes, 'node')} from {where}: {swapped or 'see the reasons below'}")
    if len(saved.origins) > NAMES:
        lines.append(f"  and {count_things(len(saved.origins) - NAMES, 'other revision')}")
    lines.append(
        f"{made.gpus} GPUs in the pool; at most {made.allowed} out of service at the same time "
        f"({saved.strategy.max_unavailable}), {made.taken} are now"
    )
    lines += pace_screen.strategy_sentences(saved.strategy, made.made_at)
    lines += filter(None, [find_vendor(saved.spec["driver"]["vendor"]).facts.notice])
    return Text("\n".join(lines))


def _drift_summary(drift: Sequence[NodeDrift]) -> RenderableType:
    nodes: dict[str, list[str]] = {}
    for node in drift:
        for finding in node.findings:
            reason = finding.reason.value if finding.counts else f"{finding.reason.value} (only shown)"
            nodes.setdefault(reason, []).append(node.node)
    if not nodes:
        return Text("none: all nodes match the stack", style="green")
    table = empty_table("Reason", "Nodes", "")
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        table.add_row(reason, str(len(names)), list_names(names))
    return table


def _batch_table(made: Forecast) -> RenderableType:
    table = empty_table("Batch", "Kind", "Start", "Duration", "Nodes", "GPUs out", "Gangs stopped and restarted")

    def add_batch(batch: BatchForecast) -> None:
        gangs = [name for group in batch.groups for name in group.gangs]
        what = _KINDS[batch.kind.value] if gangs or batch.kind.value != "Asked" else "no gang stopped"
        table.add_row(
            str(batch.number),
            f"{what}; {batch.waits_for}" if batch.waits_for else what,
            _start_time(batch, made),
            humanize.show_duration(batch.seconds) if batch.seconds else "",
            f"{len(batch.nodes)}: {list_names(batch.nodes, NAMES)}",
            str(batch.gpus),
            f"{len(gangs)}: {list_names(gangs, NAMES)}" if gangs else "none",
        )

    last = made.batches[-1]
    until = f", the last at {humanize.show_time(last.starts_at, made.made_at)}" if last.starts_at is not None else ""
    return folded_table(
        table, made.batches, add_batch, lambda rest: f"and {count_things(rest, 'more batch', 'more batches')}{until}"
    )


def _start_time(batch: BatchForecast, made: Forecast) -> str:
    if batch.starts_at is not None:
        return humanize.show_time(batch.starts_at, made.made_at)
    return "now" if batch.number == 1 else f"after batch {batch.number - 1}"


def _completion_table(made: Forecast) -> RenderableType:
    table = empty_table("Ends at", "Nodes", "Gangs")
    completions = sorted(made.completions, key=lambda completion: (completion.at, completion.nodes))
    return folded_table(
        table,
        completions,
        lambda completion: table.add_row(
            humanize.show_time(completion.at, made.made_at),
            f"{len(completion.nodes)}: {list_names(completion.nodes, NAMES)}",
            list_names(completion.gangs, NAMES),
        ),
        lambda rest: f"and {count_things(rest, 'more group')} of nodes",
    )


def _interruption_table(made: Forecast) -> RenderableType:
    table = empty_table("Gang", "GPUs", "Requested", "Without progress", "Lost GPU-hours", "Reason")
    interruptions = sorted(
        made.prediction.interruptions, key=lambda interruption: (interruption.asked_at, interruption.gang)
    )

    def add_interruption(interruption: Interruption) -> None:
        table.add_row(
            interruption.gang,
            str(interruption.gpus),
            humanize.show_time(interruption.asked_at, made.made_at),
            humanize.show_duration(interruption.seconds),
            f"{interruption.lost_gpu_hours:.1f}",
            interruption.because,
        )

    def describe_rest(count: int) -> str:
        folded = interruptions[-count:]
        lost = sum(interruption.lost_gpu_hours for interruption in folded)
        gpus = sum(interruption.gpus for interruption in folded)
        return f"and {count_things(count, 'more gang')} with {gpus} GPUs, {lost:.1f} GPU-hours lost"

    return folded_table(table, interruptions, add_interruption, describe_rest)


def _eviction_table(made: Forecast) -> RenderableType:
    table = empty_table("Owner", "Batch")
    evictions = [(name, batch.number) for batch in made.batches for group in batch.groups for name in group.evicted]
    return folded_table(
        table,
        evictions,
        lambda pair: table.add_row(pair[0], str(pair[1])),
        lambda rest: f"and {count_things(rest, 'more owner')}",
    )


def _blocker_table(blockers: Sequence[Blocker]) -> RenderableType:
    """One row for each reason and message, with all subjects that have them."""
    table = empty_table("Reason", "Nodes", "Blocked", "Message")
    groups: dict[str, list[Blocker]] = {}
    for blocker in blockers:
        groups.setdefault(blocker.reason.value, []).append(blocker)
    order = sorted(groups.items(), key=lambda item: (-len(_blocked_nodes(item[1])), item[0]))
    for reason, group in order:
        sentences: dict[str, list[str]] = {}
        for blocker in group:
            sentences.setdefault(blocker.message, []).append(blocker.subject)
        shown = list(sentences.items())[:NAMES]
        for at, (message, subjects) in enumerate(shown):
            first = at == 0
            table.add_row(
                reason if first else "",
                str(len(_blocked_nodes(group))) if first else "",
                list_names(subjects, NAMES),
                message,
            )
        if len(sentences) > len(shown):
            others = [subject for _, subjects in list(sentences.items())[NAMES:] for subject in subjects]
            table.add_row("", "", list_names(others, NAMES), "same reason; see `upgrader why NAME` for details")
    return table


def _blocked_nodes(blockers: Sequence[Blocker]) -> set[str]:
    return {node for blocker in blockers for node in blocker.nodes}


def _emptied_nodes(groups: Sequence[GroupForecast]) -> list[str]:
    counts = (
        (sum(len(group.rebooted) for group in groups), "rebooted"),
        (sum(len(group.perhaps_rebooted) for group in groups), "rebooted if the driver cannot be unloaded"),
        (sum(len(group.reconfigured) for group in groups), "with other kubelet settings"),
    )
    ways = [f"{count_things(count, 'node')} {what}" for count, what in counts if count]
    pods = sum(group.other_pods for group in groups)
    return [f"{' and '.join(ways)}, which also ends {count_things(pods, 'pod')} without GPUs"] if ways else []


def _summary_text(saved: SavedForecast) -> Text:
    made, summary = saved.forecast, saved.forecast.summary
    if not summary.drifted:
        return Text("No changes.", style="green")
    parts = [
        f"{count_things(summary.nodes, 'node')} in {count_things(summary.batches, 'batch', 'batches')}",
        f"{count_things(summary.interruptions, 'gang')} stopped once and restarted",
        f"{summary.blocked} blocked",
    ]
    parts += _emptied_nodes([group for batch in made.batches for group in batch.groups])
    if summary.waiting_for_completion:
        parts.append(f"{summary.waiting_for_completion} upgraded after completion of their jobs")
    if summary.installs:
        parts.append(f"{summary.installs} installed without a plan, since no pod with GPUs runs there")
    lines = [f"{', '.join(parts)}.", *_cost_lines(made)]
    if saved.limits.max_lost_gpu_hours:
        gangs = count_things(saved.limits.max_interruptions, "gang")
        lost = consented_loss(saved.limits.max_lost_gpu_hours)
        lines.append(f"Limits of the approval: at most {gangs} stopped and {lost:.1f} GPU-hours lost.")
    if saved.strategy.expendable:
        lines.append(f"Expendable, may be ended without a checkpoint: {', '.join(saved.strategy.expendable)}.")
    if summary.interruptions and not saved.steering:
        lines.append(
            "Placement is not guaranteed: this cluster has no means to place restarted gangs on upgraded nodes."
        )
    return Text("\n".join(lines), style="bold")


def _cost_lines(made: Forecast) -> list[str]:
    seen, at = made.prediction, made.made_at
    lines = []
    if seen.finish_p50 is not None and seen.finish_p95 is not None:
        lines.append(
            f"Expected end: {humanize.show_time(seen.finish_p50, at)} (median), "
            f"{humanize.show_time(seen.finish_p95, at)} (95th percentile)."
        )
    elif made.blockers:
        lines.append("Expected end: unknown, because of blockers.")
    if seen.lost_gpu_hours:
        bound = seen.lower_bound_gpu_hours
        gap = f"; the lower bound for any order of upgrades is {bound:.1f} (factor {seen.gap:.2f})" if bound else ""
        lines.append(f"Lost: {seen.lost_gpu_hours:.1f} GPU-hours{gap}.")
        measured = seen.durations.measured
        lines.append(
            f"Durations are measured values of {count_things(measured, 'upgrade')} of this stack."
            if measured
            else "Durations are assumed: no upgrade of this stack was measured yet."
        )
    return lines
