"""Results of simulated rollouts, as tables."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from upgrader.cli.base.humanize import show_duration
from upgrader.cli.base.render import empty_table, plural_of
from upgrader.simulate.result import InitialForecast, Result

NAMES = {"upgrader": "upgrader", "kill": "node by node, kill", "wait": "cordon, then wait"}


def result_tables(results: Sequence[Result]) -> RenderableType:
    """All strategies for one fleet, side by side."""
    first = results[0]
    head = Text(
        f"Simulated: fleet {first.fleet}, {first.nodes} {plural_of('node', first.nodes)}, {first.gpus} GPUs, "
        f"{first.jobs} {plural_of('job', first.jobs)} at the start, seed {first.seed}",
        style="bold",
    )
    table = empty_table(
        "Strategy", "Upgraded", "Took", "Lost GPU-h", "Lower bound", "Ratio", "Interruptions", "Most per job", "Ended"
    )
    for result in results:
        table.add_row(
            NAMES[result.strategy],
            f"{result.upgraded} of {result.upgraded + result.left}",
            show_duration(result.seconds) if result.seconds is not None else "not done",
            f"{result.lost_gpu_hours:,.1f}",
            f"{result.lower_bound_gpu_hours:,.1f}",
            f"{result.over_bound:.2f}" if result.lower_bound_gpu_hours else "–",
            str(result.interruptions),
            str(result.most_interruptions),
            result.ended,
        )
    where = empty_table(
        "Lost GPU-hours", "Nodes in upgrades", "Gangs beyond that", "Work thrown away", "Idle beside a wait"
    )
    for result in results:
        parts = (result.upgrades_gpu_hours, result.gangs_gpu_hours, result.thrown_away_gpu_hours, result.idle_gpu_hours)
        where.add_row(NAMES[result.strategy], *(f"{part:,.1f}" for part in parts))
    comparisons = [
        _compare_with_forecast(result, result.predicted) for result in results if result.predicted is not None
    ]
    return Group(head, Text(), table, Text(), where, *comparisons)


def _compare_with_forecast(result: Result, predicted: InitialForecast) -> Text:
    if predicted.finish_p50 is None or predicted.finish_p95 is None:
        finish = "no expected end, because of blockers"
    else:
        median, late = show_duration(predicted.finish_p50), show_duration(predicted.finish_p95)
        finish = f"expected end after {median} (median) to {late} (95th percentile)"
    real = show_duration(result.seconds) if result.seconds is not None else "not done"
    return Text(
        f"\nForecast before the start: {predicted.batches} {plural_of('batch', predicted.batches, 'batches')}, "
        f"{predicted.interruptions} interruptions, {predicted.lost_gpu_hours:,.1f} GPU-hours lost, {finish}; "
        f"simulated: {result.batches} {plural_of('batch', result.batches, 'batches')}, "
        f"{result.interruptions} interruptions, {result.lost_gpu_hours:,.1f} GPU-hours, {real}."
    )
