"""Core values and wire objects as tables for people; rich is known here and in the screens beside it only.

On a terminal with colour and in its width; in a pipe plain text, 160 columns wide, without trailing blanks.
"""

import io
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade, UpgradePlan
from upgrader.cli.progress import Progress
from upgrader.core.drift import NodeDrift
from upgrader.core.explain import Explanation
from upgrader.core.phases import NodePhase, PlanPhase, RequestPhase, ends

PIPE_WIDTH = 160
SHOWN_NAMES = 6

_GOOD = frozenset({PlanPhase.COMPLETED, NodePhase.SUCCEEDED, RequestPhase.RESTORED})
_BAD = frozenset({PlanPhase.FAILED, PlanPhase.ABORTED, NodePhase.FAILED, NodePhase.GONE, RequestPhase.ENDED})


def show(renderable: RenderableType, stream: TextIO | None = None) -> None:
    """Print to a stream (standard output): with colour only on a terminal, and not with NO_COLOR."""
    stream = stream or sys.stdout
    if stream.isatty():
        Console(file=stream, highlight=False).print(renderable)
        return
    text = io.StringIO()
    Console(file=text, width=PIPE_WIDTH, highlight=False, no_color=True, force_terminal=False).print(renderable)
    stream.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def live(stream: TextIO) -> AbstractContextManager[Live]:
    """A display that is replaced in place; only on a terminal."""
    return Live(console=Console(file=stream, highlight=False), auto_refresh=False)


# ---------------------------------------------------------------------------------------------- drift and reasons


def drift(stack: str, revision: str, nodes: int, found: Sequence[NodeDrift]) -> RenderableType:
    """Every reason for every node."""
    drifted = sum(one.drifted for one in found)
    head = Text(f"Stack {stack}, revision {revision}: {drifted} of {nodes} {plural('node', nodes)} drifted")
    if not found:
        return head
    table = columns("Node", "Reason", "What was found")
    for one in found:
        for at, finding in enumerate(one.findings):
            name = one.node if at == 0 else ""
            reason = finding.reason.value if finding.counts else f"({finding.reason.value})"
            table.add_row(name, reason, finding.message)
    return Group(head, table)


def explanation(one: Explanation) -> RenderableType:
    """A verdict, and what led there."""
    return Group(Text(one.verdict, style="bold"), *(Text(f"  - {line}") for line in one.because))


# --------------------------------------------------------------------------------------------------------- status


def overview(stacks: Sequence[GpuStack], plans: Sequence[UpgradePlan]) -> RenderableType:
    """All stacks and plans."""
    if not stacks and not plans:
        return Text("There is no GpuStack and no UpgradePlan in this cluster.")
    parts: list[RenderableType] = []
    if stacks:
        parts.append(_stacks(stacks))
    if plans:
        parts.append(_plans(plans))
    return Group(*parts)


def _stacks(stacks: Sequence[GpuStack]) -> Table:
    table = columns("Stack", "Revision", "Ready", "Nodes", "Drifted", "Plan", "Driver")
    for stack in stacks:
        status = stack.status
        table.add_row(
            stack.metadata.name,
            status.update_revision or "",
            str(status.ready),
            str(status.nodes),
            str(status.drifted),
            status.active_plan or "",
            stack.spec.driver.version,
        )
    return table


def _plans(plans: Sequence[UpgradePlan]) -> Table:
    table = columns("Plan", "Stack", "Revision", "Phase", "Done", "Stopped", "Message")
    for plan in plans:
        counts = plan.status.counts
        table.add_row(
            plan.metadata.name,
            plan.spec.stack,
            plan.spec.target_revision,
            _phase(plan.status.phase),
            f"{counts.succeeded}/{counts.nodes}",
            str(counts.interruptions),
            plan.status.message,
        )
    return table


def status(seen: Progress) -> RenderableType:
    """One plan with everything that is under way."""
    plan = seen.plan
    counts, still = plan.status.counts, plan.status.forecast
    head = Text.assemble(
        f"Plan {plan.metadata.name} (stack {plan.spec.stack}, revision {plan.spec.target_revision}): ",
        _phase(plan.status.phase),
        f"\n{plan.status.message}",
        f"\n{counts.succeeded} of {counts.nodes} nodes done, {counts.failed} failed; "
        f"{counts.interruptions} gangs stopped, {counts.restored} restored; "
        f"to come: {still.batches} {plural('batch', still.batches, 'batches')}, {still.interruptions} "
        f"{plural('interruption', still.interruptions)}, {still.held} held",
        *(f"\n{line}" for line in _told(plan)),
    )
    parts: list[RenderableType] = [head]
    shown = [visit for visit in seen.visits if not ends(visit.status.phase)] or seen.visits
    if shown:
        parts.append(section("Nodes", _visits(shown)))
    if seen.requests:
        parts.append(section("Gangs", _requests(seen)))
    if plan.status.holds:
        table = columns("Waits", "Reason", "Why, and what to do")
        for hold in plan.status.holds:
            table.add_row(hold.subject, hold.reason, hold.message)
        parts.append(section("Held", table))
    if plan.status.failures:
        table = columns("Failed", "Reason", "What happened")
        for failure in plan.status.failures:
            table.add_row(failure.subject, failure.reason, failure.message)
        parts.append(section("Failures", table))
    return Group(*parts)


def _told(plan: UpgradePlan) -> list[str]:
    """Who agreed and to what, what it costs, when it ends, and what is otherwise than it was foreseen."""
    lines, status = [], plan.status
    if plan.spec.approval is not None:
        by, envelope = plan.spec.approval, plan.spec.approval.envelope
        hours = f", {envelope.max_lost_gpu_hours:.1f} GPU-hours" if envelope.max_lost_gpu_hours is not None else ""
        ended = f"; may be ended: {', '.join(envelope.expendable)}" if envelope.expendable else ""
        lines.append(f"approved by {by.by} at {by.at}: at most {envelope.max_interruptions} gangs{hours}{ended}")
    if status.started_at is not None:
        lost = status.lost_gpu_hours
        lines.append(f"lost {lost.actual:.1f} GPU-hours so far, {lost.predicted:.1f} were expected in all")
    if status.forecast.finish_p50 is not None and not ends(status.phase):
        late = f", by {status.forecast.finish_p95} in 95 of 100 cases" if status.forecast.finish_p95 else ""
        lines.append(f"ends about {status.forecast.finish_p50}{late}")
    if status.harvesting:
        lines.append(f"kept free until their jobs end: {', '.join(status.harvesting)}")
    if status.changed and not ends(status.phase):
        lines.append(f"the forecast changed at {status.changed}")
    return lines


def _visits(visits: Sequence[NodeUpgrade]) -> Table:
    table = columns("Node", "Phase", "Until", "Driver", "Kubelet", "")
    for visit in visits:
        back = " (going back)" if visit.status.reverting and not ends(visit.status.phase) else ""
        source, target = visit.spec.source, visit.spec.target
        table.add_row(
            visit.spec.node.name,
            Text.assemble(_phase(visit.status.phase), back),
            visit.status.deadline or "",
            change(source.driver_version, target.driver_version),
            change(source.kubelet_version, target.kubelet_version),
            visit.status.message,
        )
    return table


def _requests(seen: Progress) -> Table:
    table = columns("Gang", "Phase", "Members", "Acknowledged step", "")
    for request in seen.requests:
        step = request.status.acknowledged_step
        table.add_row(
            request.spec.gang,
            _phase(request.status.phase),
            str(len(request.spec.members)),
            "" if step is None else str(step),
            request.status.message,
        )
    return table


# --------------------------------------------------------------------------------------------------------- pieces


def some(names: Iterable[str], shown: int = SHOWN_NAMES) -> str:
    """The first few names, and how many more there are."""
    known = list(names)
    rest = len(known) - shown
    return ", ".join(known[:shown]) + (f" and {rest} more" if rest > 0 else "")


def plural(word: str, count: int, several: str = "") -> str:
    """The word as it goes with a number."""
    return word if count == 1 else several or f"{word}s"


def change(before: str, after: str) -> str:
    """A version, or two with an arrow."""
    return after if before == after else f"{before or '–'} → {after or '–'}"


def _phase(phase: PlanPhase | NodePhase | RequestPhase) -> Text:
    style = "green" if phase in _GOOD else "red" if phase in _BAD else "yellow"
    return Text(phase.value, style=style)


def section(title: str, body: RenderableType) -> RenderableType:
    """A table under its title."""
    return Padding(Group(Text(title, style="bold"), body), (1, 0, 0, 0))


def columns(*titles: str) -> Table:
    """An empty table as all of ours look."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
