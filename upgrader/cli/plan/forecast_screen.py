"""`upgrader plan` for a person: what, when, who is interrupted and why, what blocks and what to do about it.

A fleet of thousands stays readable: long lists show their first ten, and how many more there are. `--output json` has
all of them.
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
"""Names in one cell."""

_KINDS = {"Canary": "canary, nobody is stopped", "Idle": "idle nodes, nobody is stopped", "Asked": "jobs are asked"}


def forecast(saved: SavedForecast) -> RenderableType:
    """What a rollout would do, and what it would not do, and why."""
    made = saved.forecast
    parts: list[RenderableType] = [_headline(saved), section("Drift", _drift_summary(made.drift))]
    if made.batches:
        title = f"Batches, one after the other; times are {humanize.zone(made.made_at)}"
        parts.append(section(title, _batches(made)))
    if made.completions:
        parts.append(section("Taken when their jobs end by themselves, nobody is asked", _completions(made)))
    if made.prediction.interruptions:
        parts.append(section("Who is interrupted", _interruptions(made)))
    if any(group.evicted for batch in made.batches for group in batch.groups):
        parts.append(section("Evicted under their PodDisruptionBudgets, their owners make them again", _evicted(made)))
    if made.blockers:
        parts.append(section("Blocked, and what to do about it", _blockers(made.blockers)))
    return Group(*parts, Padding(_summary(saved), (1, 0, 0, 0)))


def _headline(saved: SavedForecast) -> Text:
    made = saved.forecast
    lines = [f"Stack {saved.stack} → revision {saved.revision}"]
    for origin in saved.origins[:NAMES]:
        where = f"revision {origin.revision}" if origin.revision else "no revision of this stack"
        swapped = ", ".join(f"{one.what} {change(one.before, one.after)}" for one in origin.changes)
        lines.append(f"  {counted(origin.nodes, 'node')} from {where}: {swapped or 'see the reasons below'}")
    if len(saved.origins) > NAMES:
        lines.append(f"  and {counted(len(saved.origins) - NAMES, 'other revision')}")
    lines.append(
        f"{made.gpus} GPUs in the pool; at most {made.allowed} out of service at once "
        f"({saved.strategy.max_unavailable}), {made.taken} are now"
    )
    lines += pace_screen.sentences(saved.strategy, made.made_at)
    lines += _simulated(saved.spec["driver"])
    return Text("\n".join(lines))


def _simulated(driver: Mapping[str, str]) -> list[str]:
    if driver["vendor"] != SIM:
        return []
    choice = choose(SIM, driver.get("recipe", ""), driver.get("flavour", ""))
    if choice.vendor == SIM:
        return ["The driver is simulated: no kernel module is loaded, no GPU is behind it."]
    return [f"The GPUs are simulated: the {choice.vendor} driver is loaded into real kernels, no GPU is behind it."]


def _drift_summary(found: Sequence[NodeDrift]) -> RenderableType:
    nodes: dict[str, list[str]] = {}
    for one in found:
        for finding in one.findings:
            reason = finding.reason.value if finding.counts else f"{finding.reason.value} (only shown)"
            nodes.setdefault(reason, []).append(one.node)
    if not nodes:
        return Text("none: every node is as the stack asks", style="green")
    table = columns("Reason", "Nodes", "")
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        table.add_row(reason, str(len(names)), some(names))
    return table


def _batches(made: Forecast) -> RenderableType:
    table = columns("Batch", "What", "Starts", "Lasts", "Nodes", "GPUs out", "Gangs stopped and restarted")

    def row(batch: BatchForecast) -> None:
        gangs = [name for group in batch.groups for name in group.gangs]
        what = _KINDS[batch.kind.value] if gangs or batch.kind.value != "Asked" else "nobody is stopped"
        table.add_row(
            str(batch.number),
            f"{what}; {batch.waits_for}" if batch.waits_for else what,
            _start(batch, made),
            humanize.lasting(batch.seconds) if batch.seconds else "",
            f"{len(batch.nodes)}: {some(batch.nodes, NAMES)}",
            str(batch.gpus),
            f"{len(gangs)}: {some(gangs, NAMES)}" if gangs else "nobody",
        )

    last = made.batches[-1]
    until = f", the last at {humanize.clock(last.starts_at, made.made_at)}" if last.starts_at is not None else ""
    return folded(table, made.batches, row, lambda rest: f"and {counted(rest, 'more batch', 'more batches')}{until}")


def _start(batch: BatchForecast, made: Forecast) -> str:
    if batch.starts_at is not None:
        return humanize.clock(batch.starts_at, made.made_at)
    return "now" if batch.number == 1 else f"after batch {batch.number - 1}"


def _completions(made: Forecast) -> RenderableType:
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


def _interruptions(made: Forecast) -> RenderableType:
    table = columns("Gang", "GPUs", "Asked", "Without progress", "Lost GPU-hours", "Why")
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


def _evicted(made: Forecast) -> RenderableType:
    table = columns("Owner", "Batch")
    found = [(name, batch.number) for batch in made.batches for one in batch.groups for name in one.evicted]
    return folded(
        table,
        found,
        lambda pair: table.add_row(pair[0], str(pair[1])),
        lambda rest: f"and {counted(rest, 'more owner')}",
    )


def _blockers(blockers: Sequence[Blocker]) -> RenderableType:
    """One row for each reason and each sentence: what keeps many waiting in the same way is said once."""
    table = columns("Reason", "Nodes", "Waits", "Why, and what to do")
    groups: dict[str, list[Blocker]] = {}
    for blocker in blockers:
        groups.setdefault(blocker.reason.value, []).append(blocker)
    order = sorted(groups.items(), key=lambda item: (-len(_nodes(item[1])), item[0]))
    for reason, found in order:
        sentences: dict[str, list[str]] = {}
        for blocker in found:
            sentences.setdefault(blocker.message, []).append(blocker.subject)
        shown = list(sentences.items())[:NAMES]
        for at, (message, subjects) in enumerate(shown):
            first = at == 0
            table.add_row(
                reason if first else "", str(len(_nodes(found))) if first else "", some(subjects, NAMES), message
            )
        if len(sentences) > len(shown):
            others = [subject for _, subjects in list(sentences.items())[NAMES:] for subject in subjects]
            table.add_row("", "", some(others, NAMES), "each for the same reason; `upgrader why NAME` says it in full")
    return table


def _nodes(blockers: Sequence[Blocker]) -> set[str]:
    return {node for blocker in blockers for node in blocker.nodes}


def _emptied(groups: Sequence[GroupForecast]) -> list[str]:
    rebooted, reconfigured = sum(len(one.rebooted) for one in groups), sum(len(one.reconfigured) for one in groups)
    ways = [f"{counted(rebooted, 'node')} rebooted"] if rebooted else []
    ways += [f"{counted(reconfigured, 'node')} with other kubelet settings"] if reconfigured else []
    pods = sum(one.other_pods for one in groups)
    return [f"{' and '.join(ways)}, which ends {counted(pods, 'pod')} without GPUs too"] if ways else []


def _summary(saved: SavedForecast) -> Text:
    made, summary = saved.forecast, saved.forecast.summary
    if not summary.drifted:
        return Text("Nothing to do.", style="green")
    parts = [
        f"{counted(summary.nodes, 'node')} in {counted(summary.batches, 'batch', 'batches')}",
        f"{counted(summary.interruptions, 'gang')} stopped once and restarted",
        f"{summary.blocked} blocked",
    ]
    parts += _emptied([one for batch in made.batches for one in batch.groups])
    if summary.waiting_for_completion:
        parts.append(f"{summary.waiting_for_completion} taken when their jobs end")
    if summary.installs:
        parts.append(f"{summary.installs} installed without a plan, since nothing runs there")
    lines = [f"{', '.join(parts)}.", *_cost(made)]
    if saved.limits.max_lost_gpu_hours:
        gangs = counted(saved.limits.max_interruptions, "gang")
        lost = consented_loss(saved.limits.max_lost_gpu_hours)
        lines.append(f"Whoever applies this agrees to at most {gangs} stopped and {lost:.1f} GPU-hours lost.")
    if saved.strategy.expendable:
        lines.append(f"Ended without a checkpoint if they must be: {', '.join(saved.strategy.expendable)}.")
    if summary.interruptions and not saved.steering:
        lines.append(
            "Placement is not guaranteed: this cluster offers no way to steer restarted gangs to upgraded nodes."
        )
    return Text("\n".join(lines), style="bold")


def _cost(made: Forecast) -> list[str]:
    seen, at = made.prediction, made.made_at
    lines = []
    if seen.finish_p50 is not None and seen.finish_p95 is not None:
        lines.append(
            f"Finished at {humanize.clock(seen.finish_p50, at)} in one case of two, "
            f"by {humanize.clock(seen.finish_p95, at)} in 95 of 100."
        )
    elif made.blockers:
        lines.append("When it is finished nobody can say: something is blocked.")
    if seen.lost_gpu_hours:
        bound = seen.lower_bound_gpu_hours
        gap = f"; no order of upgrades loses less than {bound:.1f} ({seen.gap:.2f} times that)" if bound else ""
        lines.append(f"Lost: {seen.lost_gpu_hours:.1f} GPU-hours{gap}.")
        measured = seen.durations.measured
        lines.append(
            f"Durations as measured in {counted(measured, 'upgrade')} of this stack."
            if measured
            else "Durations are assumed: nothing was measured on this stack yet."
        )
    return lines
