"""`upgrader simulate`: a rollout of a made-up fleet over virtual time, beside what other ways of doing it cost."""

from pathlib import Path
from typing import Any

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.output_format import output_option, show
from upgrader.cli.plan.pace_options import pace_options

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BOTH = "all"

SIMULATED = (
    "Simulated: nobody's cluster is read or touched. Fleet, durations and events are made up; the forecast and every\n"
    "decision about gangs, nodes and batches are the controller's own."
)


@click.command()
@click.argument("fleet", type=FILE)
@click.option("--strategy", type=click.Choice(["ours", "kill", "wait", BOTH]), default=BOTH, show_default=True,
              help="kill: node by node, whatever runs there; wait: cordon, then wait for the jobs' end.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the durations that are drawn.")
@click.option("--no-spread", is_flag=True, help="Everything takes its median time.")
@click.option("--tolerated-failures", type=click.IntRange(0), default=0, show_default=True,
              help="The rollout pauses, and the simulation ends, when more nodes or gangs have failed.")  # fmt: skip
@click.option("--horizon", default="14d", show_default=True, metavar="DURATION", help="When it gives up.")
@pace_options
@output_option
def simulate(
    fleet: Path,
    *,
    strategy: str,
    seed: int,
    no_spread: bool,
    tolerated_failures: int,
    horizon: str,
    pace: dict[str, Any],
    output: str,
) -> int:
    """Run a rollout of the fleet in the file FLEET (JSON or CSV, see docs/fleet-file.md) over virtual time."""
    from upgrader.cli.plan import pace_parser  # noqa: PLC0415 - and below: `upgrader --help` needs none of it
    from upgrader.simulate import fleet_file  # noqa: PLC0415
    from upgrader.simulate.run import simulate as run  # noqa: PLC0415
    from upgrader.simulate.settings import BEGIN, Settings, Strategy  # noqa: PLC0415

    made = fleet_file.load(fleet)
    settings = Settings(
        rollout=pace_parser.strategy(pace, BEGIN),
        seed=seed,
        spread=not no_spread,
        begin=BEGIN,
        horizon=pace_parser.duration("--horizon", horizon),
        tolerated_failures=tolerated_failures,
    )
    click.echo(SIMULATED, err=True)
    results = [run(made, one, settings) for one in Strategy if strategy in {one, BOTH}]
    if output != "table":
        show({"simulated": True, "results": results}, output)
        return exit_codes.DONE
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.dev import simulation_screen  # noqa: PLC0415

    render.show(simulation_screen.results(results))
    return exit_codes.DONE


COMMANDS = (simulate,)
