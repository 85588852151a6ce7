"""`upgrader preflight`: check nodes before a job starts on them."""

import click
import yaml

from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.doctor import preflight_report
from upgrader.core.errors import ConfigurationError


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--image", help="Node image, by digest. Defaults to UPGRADER_NODE_IMAGE.")
@click.option(
    "--run",
    "run",
    default="",
    help="Name of the check; the same name gives the same Jobs. Defaults to the current time.",
)
@pass_session
def preflight(session: Session, *, nodes: tuple[str, ...], image: str | None, run: str) -> None:
    """Print a Job for each NODE that checks its driver and GPUs, for `kubectl create -f -`.

    The Job requests no GPU and changes nothing. Its exit code and message identify a failed check; see
    docs/concepts/validation.md.
    """
    settings = session.settings()
    pinned = image or settings.node_image
    if not pinned:
        raise ConfigurationError("no node image is set", resolution="Pass --image, or set UPGRADER_NODE_IMAGE.")
    made = session.run(
        lambda context: preflight_report.preflight_jobs(
            context, nodes, image=pinned, namespace=settings.namespace, run=run
        )
    )
    click.echo(yaml.safe_dump_all(made, sort_keys=False, width=110), nl=False)
