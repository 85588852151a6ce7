"""`upgrader simulate`: a rollout of a fleet file in virtual time, compared with other strategies."""

from pathlib import Path
from typing import Any

import click

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.plan import pace_parser
from upgrader.cli.plan.pace_options import pace_options
from upgrader.cli.simulate import simulation_screen
from upgrader.simulate.fleets import fleet_file
from upgrader.simulate.run import simulate_rollout as run
from upgrader.simulate.settings import BEGIN, SimulatedStrategy, SimulationSettings

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BOTH = "all"

SIMULATED = (
    "Simulated: no cluster is read or changed. Fleet, durations and events are simulated; the forecast and all\n"
    "decisions about gangs, nodes and batches are made by the code of the controller."
)


@click.command()
@click.argument("fleet", type=FILE)
@click.option("--strategy", type=click.Choice(["upgrader", "kill", "wait", BOTH]), default=BOTH, show_default=True,
              help="upgrader: as the controller; kill: node by node, regardless of jobs; wait: cordon, then "
"wait until jobs end; all: compare all three.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random durations.")
@click.option("--no-spread", is_flag=True, help="Use median durations instead of random ones.")
@click.option("--tolerated-failures", type=click.IntRange(0), default=0, show_default=True,
              help="Maximum number of failed nodes and gangs. When more have failed, the rollout pauses and the "
"simulation ends.")  # fmt: skip
@click.option(
    "--horizon", default="14d", show_default=True, metavar="DURATION", help="Maximum virtual time of the simulation."
)
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
    """Simulate a rollout of the fleet in the file FLEET (JSON or CSV, see docs/reference/fleet-file.md).

    No cluster is read or changed. A DURATION is for example 90s, 30m, 1h30m or 2d.
    """
    made = fleet_file.load_fleet(fleet)
    settings = SimulationSettings(
        rollout=pace_parser.parse_strategy(pace, BEGIN),
        seed=seed,
        spread=not no_spread,
        begin=BEGIN,
        horizon=pace_parser.parse_duration("--horizon", horizon),
        tolerated_failures=tolerated_failures,
    )
    click.echo(SIMULATED, err=True)
    results = [run(made, candidate, settings) for candidate in SimulatedStrategy if strategy in {candidate, BOTH}]
    if output != "table":
        print_value({"simulated": True, "results": results}, output)
        return exit_codes.DONE

    render.print_renderable(simulation_screen.result_tables(results))
    return exit_codes.DONE
