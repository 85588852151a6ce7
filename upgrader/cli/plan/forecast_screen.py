"""Text output of `upgrader plan`: batches, times, interruptions with their reasons, blockers with their resolutions.

Long lists show their first ten entries and the number of the others, so that the output for a fleet of thousands is
readable. `--output json` contains all entries.
"""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from upgrader.cli.base import humanize
from upgrader.cli.base.render import change, columns, counted, folded, section, some
from upgrader.cli.plan import pace_screen
from upgrader.core.constraints.blockers import Blocker
from upgrader.core.explain.plan_file import SavedForecast, consented_loss
from upgrader.core.forecast.forecast import BatchForecast, Forecast, GroupForecast
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.prediction import Interruption
from upgrader.core.model.vendors import SIM, choose

NAMES = 3
"""Maximum number of names in one cell."""

_KINDS = {"Canary": "canary, no gang stopped", "Idle": "idle nodes, no gang stopped", "Asked": "gangs stopped"}


def forecast(saved: SavedForecast) -> RenderableType:
    """The effects of a rollout, and the nodes that it leaves out, with reasons."""
    made = saved.forecast
    parts: list[RenderableType] = [_headline_text(saved), section("Drift", _drift_summary(made.drift))]
    if made.batches:
        title = f"Batches, in order; times in {humanize.zone(made.made_at)}"
        parts.append(section(title, _batch_table(made)))
    if made.completions:
        parts.append(
            section("Upgraded after completion of their jobs, without a checkpoint request", _completion_table(made))
        )
    if made.prediction.interruptions:
        parts.append(section("Interrupted gangs", _interruption_table(made)))
    if any(group.evicted for batch in made.batches for group in batch.groups):
        parts.append(
            section("Evicted within their PodDisruptionBudgets and recreated by their owners", _eviction_table(made))
        )
    if made.blockers:
        parts.append(section("Blockers, with resolutions", _blocker_table(made.blockers)))
    return Group(*parts, Padding(_summary_text(saved), (1, 0, 0, 0)))


def _headline_text(saved: SavedForecast) -> Text:
    made = saved.forecast
    lines = [f"Stack {saved.stack} → revision {saved.revision}"]
    for origin in saved.origins[:NAMES]:
        where = f"revision {origin.revision}" if origin.revision else "no revision of this stack"
        swapped = ", ".join(f"{one.what} {change(one.before, one.after)}" for one in origin.changes)
        lines.append(f"  {counted(origin.nodes, 'node')} from {where}: {swapped or 'see the reasons below'}")
    if len(saved.origins) > NAMES:
        lines.append(f"  and {counted(len(saved.origins) - NAMES, 'other revision')}")
    lines.append(
        f"{made.gpus} GPUs in the pool; at most {made.allowed} out of service at the same time "
        f"({saved.strategy.max_unavailable}), {made.taken} are now"
    )
    lines += pace_screen.sentences(saved.strategy, made.made_at)
    lines += _simulation_notice(saved.spec["driver"])
    return Text("\n".join(lines))


def _simulation_notice(driver: Mapping[str, str]) -> list[str]:
    if driver["vendor"] != SIM:
        return []
    choice = choose(SIM, driver.get("recipe", ""), driver.get("flavour", ""))
    if choice.vendor == SIM:
        return ["The driver is simulated: no kernel module is loaded and no GPU is used."]
    return [f"The GPUs are simulated: the {choice.vendor} driver is loaded into the kernel, but no GPU is used."]


def _drift_summary(found: Sequence[NodeDrift]) -> RenderableType:
    nodes: dict[str, list[str]] = {}
    for one in found:
        for finding in one.findings:
            reason = finding.reason.value if finding.counts else f"{finding.reason.value} (only shown)"
            nodes.setdefault(reason, []).append(one.node)
    if not nodes:
        return Text("none: all nodes match the stack", style="green")
    table = columns("Reason", "Nodes", "")
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        table.add_row(reason, str(len(names)), some(names))
    return table


def _batch_table(made: Forecast) -> RenderableType:
    table = columns("Batch", "Kind", "Start", "Duration", "Nodes", "GPUs out", "Gangs stopped and restarted")

    def row(batch: BatchForecast) -> None:
        gangs = [name for group in batch.groups for name in group.gangs]
        what = _KINDS[batch.kind.value] if gangs or batch.kind.value != "Asked" else "no gang stopped"
        table.add_row(
            str(batch.number),
            f"{what}; {batch.waits_for}" if batch.waits_for else what,
            _start_time(batch, made),
            humanize.lasting(batch.seconds) if batch.seconds else "",
            f"{len(batch.nodes)}: {some(batch.nodes, NAMES)}",
            str(batch.gpus),
            f"{len(gangs)}: {some(gangs, NAMES)}" if gangs else "none",
        )

    last = made.batches[-1]
    until = f", the last at {humanize.clock(last.starts_at, made.made_at)}" if last.starts_at is not None else ""
    return folded(table, made.batches, row, lambda rest: f"and {counted(rest, 'more batch', 'more batches')}{until}")


def _start_time(batch: BatchForecast, made: Forecast) -> str:
    if batch.starts_at is not None:
        return humanize.clock(batch.starts_at, made.made_at)
    return "now" if batch.number == 1 else f"after batch {batch.number - 1}"


def _completion_table(made: Forecast) -> RenderableType:
    table = columns("Ends at", "Nodes", "Gangs")
    found = sorted(made.completions, key=lambda one: (one.at, one.nodes))
    return folded(
        table,
        found,
        lambda one: table.add_row(
            humanize.clock(one.at, made.made_at), f"{len(one.nodes)}: {some(one.nodes, NAMES)}", some(one.gangs, NAMES)
        ),
        lambda rest: f"and {counted(rest, 'more group')} of nodes",
    )


def _interruption_table(made: Forecast) -> RenderableType:
    table = columns("Gang", "GPUs", "Requested", "Without progress", "Lost GPU-hours", "Reason")
    found = sorted(made.prediction.interruptions, key=lambda one: (one.asked_at, one.gang))

    def row(one: Interruption) -> None:
        table.add_row(
            one.gang,
            str(one.gpus),
            humanize.clock(one.asked_at, made.made_at),
            humanize.lasting(one.seconds),
            f"{one.lost_gpu_hours:.1f}",
            one.because,
        )

    def rest(count: int) -> str:
        folded = found[-count:]
        lost = sum(one.lost_gpu_hours for one in folded)
        gpus = sum(one.gpus for one in folded)
        return f"and {counted(count, 'more gang')} with {gpus} GPUs, {lost:.1f} GPU-hours lost"

    return folded(table, found, row, rest)


def _eviction_table(made: Forecast) -> RenderableType:
    table = columns("Owner", "Batch")
    found = [(name, batch.number) for batch in made.batches for one in batch.groups for name in one.evicted]
    return folded(
        table,
        found,
        lambda pair: table.add_row(pair[0], str(pair[1])),
        lambda rest: f"and {counted(rest, 'more owner')}",
    )


def _blocker_table(blockers: Sequence[Blocker]) -> RenderableType:
    """One row for each reason and message, with all subjects that have them."""
    table = columns("Reason", "Nodes", "Blocked", "Message")
    groups: dict[str, list[Blocker]] = {}
    for blocker in blockers:
        groups.setdefault(blocker.reason.value, []).append(blocker)
    order = sorted(groups.items(), key=lambda item: (-len(_blocked_nodes(item[1])), item[0]))
    for reason, found in order:
        sentences: dict[str, list[str]] = {}
        for blocker in found:
            sentences.setdefault(blocker.message, []).append(blocker.subject)
        shown = list(sentences.items())[:NAMES]
        for at, (message, subjects) in enumerate(shown):
            first = at == 0
            table.add_row(
                reason if first else "",
                str(len(_blocked_nodes(found))) if first else "",
                some(subjects, NAMES),
                message,
            )
        if len(sentences) > len(shown):
            others = [subject for _, subjects in list(sentences.items())[NAMES:] for subject in subjects]
            table.add_row("", "", some(others, NAMES), "same reason; see `upgrader why NAME` for details")
    return table


def _blocked_nodes(blockers: Sequence[Blocker]) -> set[str]:
    return {node for blocker in blockers for node in blocker.nodes}


def _emptied_nodes(groups: Sequence[GroupForecast]) -> list[str]:
    rebooted, reconfigured = sum(len(one.rebooted) for one in groups), sum(len(one.reconfigured) for one in groups)
    ways = [f"{counted(rebooted, 'node')} rebooted"] if rebooted else []
    ways += [f"{counted(reconfigured, 'node')} with other kubelet settings"] if reconfigured else []
    pods = sum(one.other_pods for one in groups)
    return [f"{' and '.join(ways)}, which also ends {counted(pods, 'pod')} without GPUs"] if ways else []


def _summary_text(saved: SavedForecast) -> Text:
    made, summary = saved.forecast, saved.forecast.summary
    if not summary.drifted:
        return Text("No changes.", style="green")
    parts = [
        f"{counted(summary.nodes, 'node')} in {counted(summary.batches, 'batch', 'batches')}",
        f"{counted(summary.interruptions, 'gang')} stopped once and restarted",
        f"{summary.blocked} blocked",
    ]
    parts += _emptied_nodes([one for batch in made.batches for one in batch.groups])
    if summary.waiting_for_completion:
        parts.append(f"{summary.waiting_for_completion} upgraded after completion of their jobs")
    if summary.installs:
        parts.append(f"{summary.installs} installed without a plan, since no pod with GPUs runs there")
    lines = [f"{', '.join(parts)}.", *_cost_lines(made)]
    if saved.limits.max_lost_gpu_hours:
        gangs = counted(saved.limits.max_interruptions, "gang")
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
            f"Expected end: {humanize.clock(seen.finish_p50, at)} (median), "
            f"{humanize.clock(seen.finish_p95, at)} (95th percentile)."
        )
    elif made.blockers:
        lines.append("Expected end: unknown, because of blockers.")
    if seen.lost_gpu_hours:
        bound = seen.lower_bound_gpu_hours
        gap = f"; the lower bound for any order of upgrades is {bound:.1f} (factor {seen.gap:.2f})" if bound else ""
        lines.append(f"Lost: {seen.lost_gpu_hours:.1f} GPU-hours{gap}.")
        measured = seen.durations.measured
        lines.append(
            f"Durations are measured values of {counted(measured, 'upgrade')} of this stack."
            if measured
            else "Durations are assumed: no upgrade of this stack was measured yet."
        )
    return lines
