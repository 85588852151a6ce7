"""The options that say how fast and in which order a rollout may go; `cli.plan.pace_parser` reads them."""

import functools
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]

max_unavailable_option = click.option(
    "--max-unavailable", default="25%", show_default=True, metavar="GPUS|PERCENT",
    help="Most GPUs out of service at once, counted in GPUs of whole gangs.",
)  # fmt: skip
unguaranteed_option = click.option(
    "--allow-unguaranteed-placement", is_flag=True,
    help="Stop gangs also where the cluster offers no way to steer them to upgraded nodes.",
)  # fmt: skip

OPTIONS = {
    "max_unavailable": max_unavailable_option,
    "topology_budget": click.option(
        "--topology-budget", multiple=True, metavar="LABEL=GPUS|PERCENT",
        help="The same among the nodes that share a value of this label (rack, power, NVLink domain). Repeatable.",
    ),
    "min_available_gpus": click.option(
        "--min-available-gpus", type=click.IntRange(0), default=0, show_default=True, metavar="GPUS",
        help="No batch leaves fewer in service.",
    ),
    "canary": click.option(
        "--canary/--no-canary", default=True, show_default=True, help="One idle node of each class first.",
    ),
    "soak": click.option(
        "--soak", default="10m", show_default=True, metavar="DURATION",
        help="How long canaries are watched before anything else is touched, as 30m or 2h.",
    ),
    "wait_for_completion": click.option(
        "--wait-for-completion", default="1h", show_default=True, metavar="DURATION",
        help="Jobs that end by themselves within this time are waited for instead of asked; 0s waits for none.",
    ),
    "windows": click.option(
        "--window", "windows", multiple=True, metavar="'DAYS HH:MM-HH:MM ZONE'",
        help="Batches start only in this time, as 'Mon-Fri 22:00-06:00 Europe/Berlin'. Repeatable.",
    ),
    "deadline": click.option(
        "--deadline", metavar="DURATION|TIME", help="No batch starts that would not end by then.",
    ),
    "lanes": click.option(
        "--lanes", type=click.IntRange(0), default=0, show_default=True, metavar="GANGS",
        help="Gangs that write checkpoints to one storage at once; 0 is any number.",
    ),
    "checkpoint_method": click.option(
        "--checkpoint-method", metavar="WAYS",
        help="How jobs are asked that do not say, as file or http,file; they are waited for else.",
    ),
    "checkpoint_timeout": click.option(
        "--checkpoint-timeout", default="30m", show_default=True, metavar="DURATION",
        help="Longest checkpoint of a job that does not say.",
    ),
    "expendable": click.option(
        "--expendable", multiple=True, metavar="JOB",
        help="Gang that may be ended without a checkpoint. Repeatable.",
    ),
    "wait_for": click.option(
        "--wait-for", multiple=True, metavar="OWNER",
        help="Replicated owner whose pods are waited for instead of evicted. Repeatable.",
    ),
    "on_failure": click.option(
        "--on-failure", type=click.Choice(["Pause", "Rollback"]), default="Pause", show_default=True,
        help="When more fails than is tolerated.",
    ),
    "allow_unguaranteed_placement": unguaranteed_option,
}  # fmt: skip


def pace_options(command: Command) -> Command:
    """Gives a command all of them; it gets what was said as one dict, `pace`."""

    @functools.wraps(command)
    def packed(*args: object, **options: object) -> object:
        pace = {name: options.pop(name) for name in OPTIONS}
        return command(*args, pace=pace, **options)

    for option in reversed(OPTIONS.values()):
        packed = option(packed)
    return packed
