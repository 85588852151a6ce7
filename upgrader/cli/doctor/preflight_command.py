"""`upgrader preflight`: the look at nodes before a job is put there."""

import click

from upgrader.cli.base.session import Session, pass_session


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@click.option("--image", help="Node image by digest; else UPGRADER_NODE_IMAGE.")
@click.option("--run", "run", default="", help="Name of the look; the same name makes the same Jobs. Else the time.")
@pass_session
def preflight(session: Session, *, nodes: tuple[str, ...], image: str | None, run: str) -> None:
    """Print a Job for each NODE that looks at its driver and at every GPU, for `kubectl create -f -`.

    It takes no GPU and changes nothing. Its exit code and message say which check failed; see docs/validation.md.
    """
    import yaml  # noqa: PLC0415 - as all that only this command needs

    from upgrader.cli.doctor import preflight_report  # noqa: PLC0415
    from upgrader.core.errors import ConfigurationError  # noqa: PLC0415

    settings = session.settings()
    pinned = image or settings.node_image
    if not pinned:
        raise ConfigurationError(
            "no image is set for the pods that look at nodes", resolution="Give --image, or set UPGRADER_NODE_IMAGE."
        )
    made = session.run(
        lambda context: preflight_report.jobs(context, nodes, image=pinned, namespace=settings.namespace, run=run)
    )
    click.echo(yaml.safe_dump_all(made, sort_keys=False, width=110), nl=False)


COMMANDS = (preflight,)
