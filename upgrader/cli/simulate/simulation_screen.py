"""Results of simulated rollouts, as tables."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from upgrader.cli.base.humanize import show_duration
from upgrader.cli.base.render import empty_table, plural_of
from upgrader.simulate.result import Predicted, Result

NAMES = {"ours": "upgrader", "kill": "node by node, kill", "wait": "cordon, then wait"}


def result_tables(found: Sequence[Result]) -> RenderableType:
    """All strategies for one fleet, side by side."""
    first = found[0]
    head = Text(
        f"Simulated: fleet {first.fleet}, {first.nodes} {plural_of('node', first.nodes)}, {first.gpus} GPUs, "
        f"{first.jobs} {plural_of('job', first.jobs)} at the start, seed {first.seed}",
        style="bold",
    )
    table = empty_table(
        "Strategy", "Upgraded", "Took", "Lost GPU-h", "Lower bound", "Ratio", "Interruptions", "Most per job", "Ended"
    )
    for one in found:
        table.add_row(
            NAMES[one.strategy],
            f"{one.upgraded} of {one.upgraded + one.left}",
            show_duration(one.seconds) if one.seconds is not None else "not done",
            f"{one.lost_gpu_hours:,.1f}",
            f"{one.lower_bound_gpu_hours:,.1f}",
            f"{one.over_bound:.2f}" if one.lower_bound_gpu_hours else "–",
            str(one.interruptions),
            str(one.most_interruptions),
            one.ended,
        )
    where = empty_table(
        "Lost GPU-hours", "Nodes in upgrades", "Gangs beyond that", "Work thrown away", "Idle beside a wait"
    )
    for one in found:
        parts = (one.upgrades_gpu_hours, one.gangs_gpu_hours, one.thrown_away_gpu_hours, one.idle_gpu_hours)
        where.add_row(NAMES[one.strategy], *(f"{part:,.1f}" for part in parts))
    said = [_compare_with_forecast(one, one.predicted) for one in found if one.predicted is not None]
    return Group(head, Text(), table, Text(), where, *said)


def _compare_with_forecast(one: Result, said: Predicted) -> Text:
    if said.finish_p50 is None or said.finish_p95 is None:
        finish = "no expected end, because of blockers"
    else:
        median, late = show_duration(said.finish_p50), show_duration(said.finish_p95)
        finish = f"expected end after {median} (median) to {late} (95th percentile)"
    real = show_duration(one.seconds) if one.seconds is not None else "not done"
    return Text(
        f"\nForecast before the start: {said.batches} {plural_of('batch', said.batches, 'batches')}, "
        f"{said.interruptions} interruptions, {said.lost_gpu_hours:,.1f} GPU-hours lost, {finish}; "
        f"simulated: {one.batches} {plural_of('batch', one.batches, 'batches')}, {one.interruptions} interruptions, "
        f"{one.lost_gpu_hours:,.1f} GPU-hours, {real}."
    )
