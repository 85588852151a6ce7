"""`upgrader controller | crds | uninstall | adopt`."""

from typing import TYPE_CHECKING

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.core.errors import UpgraderError

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context


@click.command()
@pass_session
def controller(session: Session) -> int:
    """Run the controller; settings come from the environment (UPGRADER_*, see docs/cli.md)."""
    import asyncio  # noqa: PLC0415

    from upgrader.controller.run import run  # noqa: PLC0415

    asyncio.run(run(session.settings(), kubeconfig=session.kubeconfig, context=session.context))
    return exit_codes.DONE


@click.command()
@click.option("--install", is_flag=True, help="Apply them to the cluster, and wait until they are served.")
@pass_session
def crds(session: Session, *, install: bool) -> int:
    """Print the CustomResourceDefinitions of this release."""
    if not install:
        from upgrader.api.crd import manifests  # noqa: PLC0415

        click.echo("---\n".join(manifests().values()), nl=False)
        return exit_codes.DONE

    import asyncio  # noqa: PLC0415

    async def apply() -> None:
        from upgrader.kube.client import KubeCluster  # noqa: PLC0415
        from upgrader.kube.install import install_kinds  # noqa: PLC0415

        async with await KubeCluster.connect(session.kubeconfig, session.context) as cluster:
            await install_kinds(cluster)

    asyncio.run(apply())
    click.echo("our kinds are installed and served", err=True)
    return exit_codes.DONE


@click.command()
@click.option("--crds", is_flag=True, help="Remove our kinds from the API server too.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, metavar="SECONDS",
              help="How long to wait until nothing is stopped or marked (exit code 5).")  # fmt: skip
@click.option("--auto-approve", is_flag=True, help="Do not ask.")
@pass_session
def uninstall(session: Session, *, crds: bool, timeout: float, auto_approve: bool) -> int:
    """Abort all plans, wait until nothing of ours is stopped or marked, then delete our objects."""
    question = "Abort all plans and remove everything of upgrader from this cluster?"
    if not auto_approve and not click.confirm(question, err=True):
        raise UpgraderError("not agreed; nothing was changed")
    from upgrader.cli.admin import uninstallation  # noqa: PLC0415

    def tell(line: str) -> None:
        click.echo(line, err=True)

    async def work(context: "Context") -> None:
        await uninstallation.uninstall(context, patience=timeout, crds=crds, tell=tell, sleep=session.sleep)

    session.run(work)
    return exit_codes.DONE


@click.command()
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--stack", help="All nodes of this stack that another operator has, instead of named ones.")
@click.option("--by", help="Who hands them over; this user at this machine unless given.")
@pass_session
def adopt(session: Session, *, nodes: tuple[str, ...], stack: str | None, by: str | None) -> int:
    """Hand nodes over whose driver or device plugin another operator deploys: their first upgrade takes them."""
    if bool(nodes) is (stack is not None):
        raise click.UsageError("name nodes, or a stack with --stack")
    from upgrader.cli.admin import adoption  # noqa: PLC0415

    for line in session.run(lambda context: adoption.adopt(context, nodes, stack, by=by)):
        click.echo(line)
    return exit_codes.DONE


COMMANDS = (controller, crds, uninstall, adopt)
