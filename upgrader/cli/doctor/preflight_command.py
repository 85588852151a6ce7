"""`upgrader preflight`: check nodes before a job starts on them."""

import click
import yaml

from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.doctor import preflight_report
from upgrader.core.errors import ConfigurationError


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--image", help="Image of the pods on nodes (`make image`), by digest. Defaults to UPGRADER_NODE_IMAGE.")
@click.option(
    "--run",
    "run",
    default="",
    help="Name of this check, from which the names of the Jobs are computed: a second create with the "
    "same name fails. Defaults to the current time.",
)
@pass_session
def preflight(session: Session, *, nodes: tuple[str, ...], image: str | None, run: str) -> None:
    """Print a Job for each NODE that checks its driver and GPUs, for `kubectl create -f -`.

    The Jobs request no GPU and change nothing on the node. The exit code and the termination message of a pod identify
    the failed check, see docs/concepts/validation.md.
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
