"""`upgrader controller | crds | uninstall | adopt`."""

import asyncio
from typing import TYPE_CHECKING

import click

from upgrader.api.crd import crd_files
from upgrader.cli.admin import adoption, uninstallation
from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.controller.run import run_controller
from upgrader.core.errors import UpgraderError
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context


@click.command()
@pass_session
def controller(session: Session) -> int:
    """Run the controller. Settings are read from the environment (UPGRADER_*, see docs/reference/cli.md)."""
    asyncio.run(run_controller(session.settings(), kubeconfig=session.kubeconfig, context=session.context))
    return exit_codes.DONE


@click.command()
@click.option("--install", is_flag=True, help="Apply the definitions to the cluster and wait until they are served.")
@pass_session
def crds(session: Session, *, install: bool) -> int:
    """Print the CustomResourceDefinitions of this release."""
    if not install:
        click.echo("---\n".join(crd_files().values()), nl=False)
        return exit_codes.DONE

    async def apply() -> None:

        async with await KubeCluster.connect(session.kubeconfig, session.context) as cluster:
            await install_kinds(cluster)

    asyncio.run(apply())
    click.echo("the custom resource definitions are installed and served", err=True)
    return exit_codes.DONE


@click.command()
@click.option("--crds", is_flag=True, help="Also delete the CustomResourceDefinitions.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, metavar="SECONDS",
              help="Maximum time to wait until all plans, node upgrades and checkpoint requests have ended "
"(exit code 5).")  # fmt: skip
@click.option("--auto-approve", is_flag=True, help="Do not prompt for confirmation.")
@pass_session
def uninstall(session: Session, *, crds: bool, timeout: float, auto_approve: bool) -> int:
    """Abort all plans, wait until they have ended, and delete all objects of upgrader.

    The controller must run until the command has ended. Labels and taints of upgrader are removed from the nodes;
    drivers stay loaded.
    """
    question = "Abort all plans and remove upgrader from this cluster?"
    if not auto_approve and not click.confirm(question, err=True):
        raise UpgraderError("not confirmed; nothing was changed")

    def tell(line: str) -> None:
        click.echo(line, err=True)

    async def work(context: "Context") -> None:
        await uninstallation.uninstall_all(context, patience=timeout, crds=crds, tell=tell, sleep=session.sleep)

    session.run(work)
    return exit_codes.DONE


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("--stack", help="Select all nodes of this stack that another operator manages, instead of NODE.")
@click.option("--by", metavar="NAME", help="Name of the user who allows it. Defaults to USER@HOST.")
@pass_session
def adopt(session: Session, *, nodes: tuple[str, ...], stack: str | None, by: str | None) -> int:
    """Allow upgrader to take over nodes whose driver or device plugin another operator deploys.

    The command only annotates the nodes. The first upgrade of a node takes it over. After two failed upgrades a node
    waits for this command again. Specify either NODE or --stack.
    """
    if bool(nodes) is (stack is not None):
        raise click.UsageError("specify either nodes or --stack")

    for line in session.run(lambda context: adoption.adopt_nodes(context, nodes, stack, by=by)):
        click.echo(line)
    return exit_codes.DONE
