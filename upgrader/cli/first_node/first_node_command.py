"""`upgrader first-node`: the first hour with one real node, phase by phase."""

from pathlib import Path

import click
import msgspec

from upgrader.api.resources import NAMESPACES
from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.first_node import changing_phases, node_identity, reading_phases
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.cli.first_node.report_folder import ReportFolder
from upgrader.cli.first_node.upgrade_phase import upgrade_and_return
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.core.first_node.journal import PhaseRun, PhaseVerdict
from upgrader.core.first_node.phases import FIRST, PHASES, requested_phase
from upgrader.core.first_node.report_page import describe_change, describe_next
from upgrader.reconcile.observe.cluster_snapshot import CLUSTER_NAMESPACE
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.settings import StackSettings

ACTS = {
    0: reading_phases.read_cluster,
    1: reading_phases.survey_one,
    2: reading_phases.record_baseline,
    3: reading_phases.forecast_node,
    7: changing_phases.run_gpu_pods,
    9: changing_phases.find_holder,
    13: reading_phases.compare_baseline,
}
"""By the numbers of the phases that are available without more options."""
UPGRADE = 12
"""The phase with a plan."""


@click.command("first-node")
@click.argument("node", metavar="NODE")
@click.option(
    "--report",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the report, one for each node. It is created, or continued.",
)
@click.option(
    "--go",
    type=int,
    metavar="N",
    help="Run phase N. Without it, only the phases run that read. Everything is put back after each phase.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="With --go 12: the change of the stack, for example driver.version=570.20. Repeatable.",
)
@click.option("--image", help="The node image, by digest. Defaults to UPGRADER_NODE_IMAGE.")
@pass_session
def first_node(
    session: Session, *, node: str, report: Path, go: int | None, changes: tuple[str, ...], image: str | None
) -> int:
    """Examine one NODE with GPUs, phase by phase, and write a report without names and addresses.

    A run that was interrupted is put back when the command starts again with the same DIR.
    """
    numbers = FIRST if go is None else (requested_phase(go).number,)
    if bool(changes) != (go == UPGRADE):
        raise click.UsageError(f"--go {UPGRADE} and --set require each other")
    acts = ACTS | {UPGRADE: lambda hour: upgrade_and_return(hour, changes)}
    settings = session.settings()
    pinned = image or settings.node_image
    if not pinned:
        raise ConfigurationError("no node image is set", resolution="Pass --image, or set UPGRADER_NODE_IMAGE.")
    stack = msgspec.structs.replace(StackSettings(node_image=pinned), namespace=settings.namespace)
    folder = ReportFolder(report)

    async def work(context: Context) -> list[PhaseRun]:
        cluster = await context.cluster.get(NAMESPACES, CLUSTER_NAMESPACE)
        journal = folder.read_journal(node, cluster.metadata.uid if cluster is not None else "")
        hour = FirstHour(context, journal, folder, stack, session.sleep)
        for change in await hour.put_back():
            click.echo(f"put back after an interrupted run: {describe_change(change)}")
        await node_identity.read_node(context, node)
        hour.hide_names(await node_identity.collect_names(context, node))
        entries = []
        for number in numbers:
            entries.append(await hour.run_phase(number, acts[number]))
            click.echo(_describe_entry(entries[-1]))
        click.echo(f"Report: {report / 'report.md'}\n{describe_next(hour.journal)}")
        return entries

    with folder.lock():
        entries = session.run(work)
    well = {PhaseVerdict.PASSED, PhaseVerdict.SKIPPED}
    return exit_codes.DONE if all(entry.verdict in well for entry in entries) else UpgraderError.exit_code


def _describe_entry(entry: PhaseRun) -> str:
    title = f"phase {entry.phase} {PHASES[entry.phase].title}"
    return f"{title}: {entry.verdict.value}, {entry.seconds:.1f} s: {entry.message}"
