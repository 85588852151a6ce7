"""Options for the pace and order of a rollout; `cli.plan.pace_parser` parses them."""

import functools
from collections.abc import Callable
from typing import Any

import click

from upgrader.core.model.validation import ValidationLevel

Command = Callable[..., Any]

LEVELS = [level.value for level in ValidationLevel]

max_unavailable_option = click.option(
    "--max-unavailable",
    default="25%",
    show_default=True,
    metavar="GPUS|PERCENT",
    help="Maximum number of GPUs that may be out of service at the same time, with all GPUs of a "
    "stopped gang counted: a number, or a percentage of the pool.",
)
unguaranteed_option = click.option(
    "--allow-unguaranteed-placement",
    is_flag=True,
    help="Stop gangs even if the cluster has no means to place their restarted pods on upgraded nodes.",
)

OPTIONS = {
    "max_unavailable": max_unavailable_option,
    "topology_budget": click.option(
        "--topology-budget",
        multiple=True,
        metavar="LABEL=GPUS|PERCENT",
        help="Maximum number of GPUs that may be out of service at the same time on nodes with the same "
        "value of the node label LABEL, for example of one rack. Repeatable.",
    ),
    "min_available_gpus": click.option(
        "--min-available-gpus",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="GPUS",
        help="Minimum number of GPUs of the pool that stay in service during a batch.",
    ),
    "canary": click.option(
        "--canary/--no-canary",
        default=True,
        show_default=True,
        help="Upgrade one idle node of each class (GPU model, kernel, driver) before all others.",
    ),
    "soak": click.option(
        "--soak",
        default="10m",
        show_default=True,
        metavar="DURATION",
        help="Time that canaries are watched before the next batch starts, for example 30m or 2h.",
    ),
    "validation": click.option(
        "--validation",
        type=click.Choice(LEVELS),
        default="Devices",
        show_default=True,
        help="Validation of nodes before their release. AllReduce also measures an all-reduce over all GPUs of a node, "
        "Diagnostics also runs NVIDIA's diagnostics; the stack must have programs for them (spec.validation).",
    ),
    "canary_validation": click.option(
        "--canary-validation",
        type=click.Choice(LEVELS),
        help="Validation of canaries, if it differs from --validation.",
    ),
    "wait_for_completion": click.option(
        "--wait-for-completion",
        default="1h",
        show_default=True,
        metavar="DURATION",
        help="Wait for completion of jobs that declare an end within this time, instead of stopping them. "
        "0s disables the wait.",
    ),
    "windows": click.option(
        "--window",
        "windows",
        multiple=True,
        metavar="'DAYS HH:MM-HH:MM ZONE'",
        help="Window in which batches may start, for example 'Mon-Fri 22:00-06:00 Europe/Berlin'. DAYS "
        "defaults to daily, ZONE to UTC. Without a window, batches may start at any time. "
        "Repeatable.",
    ),
    "deadline": click.option(
        "--deadline",
        metavar="DURATION|TIME",
        help="Do not start a batch that is expected to end later than this, for example 8h or "
        "2026-12-01T06:00:00Z. The plan fails if nodes remain. Defaults to no deadline.",
    ),
    "lanes": click.option(
        "--lanes",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="GANGS",
        help="Maximum number of gangs that may write checkpoints to one storage at the same time. 0 means no limit.",
    ),
    "checkpoint_method": click.option(
        "--checkpoint-method",
        metavar="METHODS",
        help="Checkpoint methods for jobs that declare none, for example file or http,file. Without this "
        "option, the plan waits for completion of these jobs.",
    ),
    "checkpoint_timeout": click.option(
        "--checkpoint-timeout",
        default="30m",
        show_default=True,
        metavar="DURATION",
        help="Maximum duration of one checkpoint, for jobs that declare none.",
    ),
    "expendable": click.option(
        "--expendable",
        multiple=True,
        metavar="JOB",
        help="Gang that may be ended without a checkpoint. Repeatable.",
    ),
    "wait_for": click.option(
        "--wait-for",
        multiple=True,
        metavar="OWNER",
        help="Owner with replicas whose pods are not evicted: the upgrade of their nodes waits until the "
        "pods have ended. Repeatable.",
    ),
    "on_failure": click.option(
        "--on-failure",
        type=click.Choice(["Pause", "Rollback"]),
        default="Pause",
        show_default=True,
        help="Action to take when a canary fails, or more nodes and gangs fail than are tolerated.",
    ),
    "allow_unguaranteed_placement": unguaranteed_option,
}


def pace_options(command: Command) -> Command:
    """Add all these options to a command, which gets their values as one dict, `pace`."""

    @functools.wraps(command)
    def pass_pace(*args: object, **options: object) -> object:
        pace = {name: options.pop(name) for name in OPTIONS}
        return command(*args, pace=pace, **options)

    for option in reversed(OPTIONS.values()):
        pass_pace = option(pass_pace)
    return pass_pace
