"""The command group of the program: commands are imported when they run, errors become messages and exit codes."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from upgrader.cli.base import exit_codes
from upgrader.core.errors import ConfigurationError, UpgraderError

ENTRY_POINTS = "gpu_upgrader.commands"
"""Group of the entry points by which other distributions add commands: the name of each, and its click command."""


class Program(click.Group):
    """A command group that prints errors and returns the exit codes of this program.

    `--help` and completion list the commands from this table, without an import of their modules.

    Args:
        lazy: name of each command to its object, `module:attribute`, and its short help.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **extra: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(*args, **extra)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*self.lazy, *_added_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command as it is listed: with its name and short help, without its options."""
        if cmd_name in self.lazy:
            return click.Command(cmd_name, short_help=self.lazy[cmd_name][1])
        point = _added_commands(ctx).get(cmd_name)
        if point is None:
            return None
        origin = point.dist
        return click.Command(cmd_name, short_help=f"Command of {origin.name}." if origin is not None else "")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that runs, imported."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, self.load(ctx, name) if name is not None and listed is not None else listed, rest

    def load(self, ctx: click.Context, name: str) -> click.Command:
        """Import a command.

        Raises:
            KeyError: there is none of this name.
            ConfigurationError: its module was left out, as in the image of the controller.
        """
        if name in self.lazy:
            module, _, attribute = self.lazy[name][0].partition(":")
            try:
                command = getattr(importlib.import_module(module), attribute)
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("upgrader."):
                    raise
                raise ConfigurationError(
                    f"`upgrader {name}` is not part of this image: it has the commands for a cluster only",
                    resolution="Install gpu-upgrader on your machine and run the command there.",
                ) from error
        else:
            command = _added_commands(ctx)[name].load()
        if not isinstance(command, click.Command):
            raise TypeError(f"{name} is not a click command")
        return command

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # noqa: ANN401
        """Run the program and exit."""
        sys.exit(self._run(args, prog_name, **(extra | {"standalone_mode": False})))

    def _run(self, args: Sequence[str] | None, prog_name: str | None, **extra: Any) -> int:  # noqa: ANN401
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


def _added_commands(ctx: click.Context) -> Mapping[str, EntryPoint]:
    """Commands of other distributions by name, read once per invocation: a read scans all installed distributions."""
    if ENTRY_POINTS not in ctx.meta:
        ctx.meta[ENTRY_POINTS] = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    added: Mapping[str, EntryPoint] = ctx.meta[ENTRY_POINTS]
    return added


def _print_error(error: UpgraderError) -> None:
    click.echo(f"error: {error.brief}", err=True)
    for part in (error.details, error.resolution):
        for line in part.splitlines():
            click.echo(f"  {line}", err=True)
