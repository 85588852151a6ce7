"""`upgrader`: the commands, and the conversion of errors into messages and exit codes.

Commands import their dependencies when they run, so that `upgrader --help` and completion are fast.
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
    """A command group that prints errors and returns the exit codes of this program."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """Run the program and exit."""
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
            click.echo("\ninterrupted; the controller continues the plan", err=True)
            return exit_codes.INTERRUPTED
        except UpgraderError as error:
            _print_error(error)
            return error.exit_code
        except BrokenPipeError:
            return exit_codes.DONE  # the reader of the output (head, less) has closed the pipe


def _print_error(error: UpgraderError) -> None:
    click.echo(f"error: {error.brief}", err=True)
    for part in (error.details, error.resolution):
        for line in part.splitlines():
            click.echo(f"  {line}", err=True)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="upgrader")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="Path of the kubeconfig. Defaults to KUBECONFIG, then ~/.kube/config.",
)
@click.option("--context", "context_name", help="Context of the kubeconfig to use.")
@click.option("-n", "--namespace", help="Namespace of the controller and its objects.")
@click.pass_context
def program(context: click.Context, kubeconfig: str | None, context_name: str | None, namespace: str | None) -> None:
    """Upgrade fleets of GPU nodes without loss of training progress.

    Jobs are requested to write a checkpoint; then driver, device plugin and kubelet are replaced in one upgrade.
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
