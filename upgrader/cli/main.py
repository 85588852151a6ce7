"""`upgrader`: the commands, and the one place where errors become a message and an exit code.

Nothing heavy is imported here, so that `upgrader --help` and completion are quick; commands import what they need.
"""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from upgrader import __version__
from upgrader.cli.admin import admin_commands, guard_rails_command, node_labels_command
from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session
from upgrader.cli.control import checkpoint_command, control_commands
from upgrader.cli.dev import dev_commands, simulate_command
from upgrader.cli.doctor import doctor_command, preflight_command
from upgrader.cli.images import image_commands
from upgrader.cli.plan import plan_commands
from upgrader.cli.status import status_command
from upgrader.core.errors import UpgraderError


class Program(click.Group):
    """A group whose errors are told in our words and end with our exit codes."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """Run and exit."""
        sys.exit(self._code(args, prog_name, **(extra | {"standalone_mode": False})))

    def _code(self, args: Sequence[str] | None, prog_name: str | None, **extra: Any) -> int:  # noqa: ANN401
        try:
            return super().main(args, prog_name, **extra) or exit_codes.DONE
        except click.UsageError as error:
            error.show()
            return exit_codes.USAGE
        except click.ClickException as error:
            error.show()
            return UpgraderError.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("\ninterrupted; what was applied goes on in the controller", err=True)
            return exit_codes.INTERRUPTED
        except UpgraderError as error:
            _tell(error)
            return error.exit_code
        except BrokenPipeError:
            return exit_codes.DONE  # the reader of our output (head, less) has seen enough


def _tell(error: UpgraderError) -> None:
    click.echo(f"error: {error.brief}", err=True)
    for part in (error.details, error.resolution):
        for line in part.splitlines():
            click.echo(f"  {line}", err=True)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="upgrader")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="As kubectl; else KUBECONFIG, else ~/.kube/config.")
@click.option("--context", "context_name", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", help="Namespace of the controller and of what it keeps.")
@click.pass_context
def program(context: click.Context, kubeconfig: str | None, context_name: str | None, namespace: str | None) -> None:
    """Upgrade fleets of GPU nodes without losing work.

    Jobs are asked for a checkpoint first; then driver, device plugin and kubelet are swapped in one upgrade.
    """
    if context.obj is None:
        context.obj = Session(kubeconfig=kubeconfig, context=context_name, namespace=namespace)


for module in (
    plan_commands,
    status_command,
    control_commands,
    checkpoint_command,
    doctor_command,
    guard_rails_command,
    node_labels_command,
    preflight_command,
    admin_commands,
    image_commands,
    simulate_command,
    dev_commands,
):
    for command in module.COMMANDS:
        program.add_command(command)


def main() -> NoReturn:
    """The entry point of the installed program."""
    program.main()
