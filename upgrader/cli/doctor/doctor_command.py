"""`upgrader doctor`: check whether a cluster, its jobs and its nodes are ready for rollouts."""

from collections.abc import Sequence

import click
import msgspec

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.doctor import advice_screen, doctor_checks, job_lints, node_survey
from upgrader.core.doctor.advice import Advice, has_problem
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.stack.settings import StackSettings


@click.command()
@click.option(
    "--jobs", is_flag=True, help="Check the jobs on GPU nodes for settings that lose progress or delay upgrades."
)
@click.option("--stack", help="With --jobs: check only jobs on the nodes of this stack. Defaults to all stacks.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    help="Survey this node instead: what on it would make an upgrade fail. Creates a privileged pod on the node, which "
    "only reads, and deletes it. Can be used several times.",
)
@click.option("--image", help="With --node: the node image, by digest. Defaults to UPGRADER_NODE_IMAGE.")
@output_option
@pass_session
def doctor(
    session: Session, *, jobs: bool, stack: str | None, nodes: tuple[str, ...], image: str | None, output: str
) -> int:
    """Check whether the cluster is ready for rollouts. The exit code is 1 if there is a problem."""
    if stack is not None and not jobs:
        raise click.UsageError("--stack requires --jobs")
    if image is not None and not nodes:
        raise click.UsageError("--image requires --node")
    if jobs and nodes:
        raise click.UsageError("--jobs and --node are different checks: use one of them")

    findings: Sequence[Advice]
    if nodes:
        findings = _survey_nodes(session, nodes, image, output)
    elif jobs:
        report = session.run(lambda context: job_lints.lint_jobs(context, stack))
        if output == "table":
            render.print_renderable(advice_screen.job_tables(report))
        else:
            print_value(report, output)
        findings = report.found
    else:
        findings = session.run(doctor_checks.run_checks)
        if output == "table":
            render.print_renderable(advice_screen.advice_table(findings))
        else:
            print_value(findings, output)
    return UpgraderError.exit_code if has_problem(findings) else exit_codes.DONE


def _survey_nodes(session: Session, nodes: Sequence[str], image: str | None, output: str) -> list[Advice]:
    """Print the surveys of nodes; returns the findings of all."""
    settings = session.settings()
    pinned = image or settings.node_image
    if not pinned:
        raise ConfigurationError("no node image is set", resolution="Pass --image, or set UPGRADER_NODE_IMAGE.")
    stack_settings = msgspec.structs.replace(StackSettings(node_image=pinned), namespace=settings.namespace)
    surveys = session.run(
        lambda context: node_survey.survey_nodes(context, nodes, settings=stack_settings, sleep=session.sleep)
    )
    if output == "table":
        render.print_renderable(advice_screen.survey_tables(surveys))
    else:
        print_value(surveys, output)
    return [advice for survey in surveys for advice in survey.report.findings]
