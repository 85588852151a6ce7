"""`upgrader`: the commands and the global options."""

from typing import NoReturn

import click

from upgrader import __version__
from upgrader.cli.base.program import Program
from upgrader.cli.base.session import Session

COMMANDS = {
    "abort": ("upgrader.cli.control.control_commands:abort", "Abort PLAN."),
    "adopt": (
        "upgrader.cli.admin.admin_commands:adopt",
        "Allow upgrader to take over nodes whose driver or device plugin another operator deploys.",
    ),
    "apply": (
        "upgrader.cli.plan.plan_commands:apply",
        "Approve the forecast that `upgrader plan -o FILE` wrote, and start its plan.",
    ),
    "approve": (
        "upgrader.cli.control.control_commands:approve",
        "Approve the rest of PLAN within the limits of the current forecast and of the options.",
    ),
    "build": (
        "upgrader.cli.images.image_commands:build",
        "Build one driver image on this machine, unless it exists, and print its digest.",
    ),
    "checkpoint": (
        "upgrader.cli.control.checkpoint_command:checkpoint",
        "Request a checkpoint of JOB, print its acknowledgements and release it.",
    ),
    "controller": ("upgrader.cli.admin.admin_commands:controller", "Run the controller."),
    "crds": ("upgrader.cli.admin.admin_commands:crds", "Print the CustomResourceDefinitions of this release."),
    "doctor": ("upgrader.cli.doctor.doctor_command:doctor", "Check whether the cluster is ready for rollouts."),
    "drift": ("upgrader.cli.plan.plan_commands:drift", "Show how nodes differ from their stack."),
    "first-node": (
        "upgrader.cli.first_node.first_node_command:first_node",
        "Examine one NODE with GPUs, phase by phase, and write a report without names and addresses.",
    ),
    "force": ("upgrader.cli.control.control_commands:force", "Force the waiting upgrade of NODE to continue."),
    "guard-rails": (
        "upgrader.cli.admin.guard_rails_command:guard_rails",
        "Print the PriorityClasses, quotas and tuned profile of a stack.",
    ),
    "images": (
        "upgrader.cli.images.image_commands:images",
        "Manage driver images: discover kernels, build, verify, clean up.",
    ),
    "node-labels": (
        "upgrader.cli.admin.node_labels_command:node_labels",
        "Print the labels of node-feature-discovery for this machine.",
    ),
    "pause": ("upgrader.cli.control.control_commands:pause", "Pause PLAN."),
    "plan": (
        "upgrader.cli.plan.plan_commands:plan",
        "Show the forecast of a rollout: batches, times, interrupted gangs, blockers.",
    ),
    "preflight": (
        "upgrader.cli.doctor.preflight_command:preflight",
        "Print a Job for each NODE that checks its driver and GPUs, for `kubectl create -f -`.",
    ),
    "resume": ("upgrader.cli.control.control_commands:resume", "Resume PLAN."),
    "rollback": (
        "upgrader.cli.control.control_commands:rollback",
        "Create a plan that rolls the nodes back to an earlier revision.",
    ),
    "simulate": (
        "upgrader.cli.simulate.simulate_command:simulate",
        "Simulate a rollout of the fleet in the file FLEET (JSON or CSV, see docs/reference/fleet-file.md).",
    ),
    "status": (
        "upgrader.cli.status.status_command:status",
        "Show all stacks and plans, or PLAN with its node upgrades and checkpoint requests.",
    ),
    "uninstall": (
        "upgrader.cli.admin.admin_commands:uninstall",
        "Abort all plans, wait until they have ended, and delete all objects of upgrader.",
    ),
    "why": (
        "upgrader.cli.plan.plan_commands:why",
        "Explain why or when a node is upgraded, or why a job is stopped or not.",
    ),
}
"""Object and short help of each command; a test compares them with the commands."""


@click.group(
    cls=Program, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="upgrader")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="Path of the kubeconfig. Defaults to KUBECONFIG, then ~/.kube/config, then the service account of the pod.",
)
@click.option("--context", "context_name", help="Context of the kubeconfig to use. Defaults to the current context.")
@click.option(
    "-n", "--namespace", help="Namespace of the controller. Defaults to UPGRADER_NAMESPACE, then gpu-upgrader-system."
)
@click.pass_context
def program(context: click.Context, kubeconfig: str | None, context_name: str | None, namespace: str | None) -> None:
    """Upgrade fleets of GPU nodes without loss of training progress.

    The controller requests a checkpoint from each job on a node, and stops the job after all its pods have
    acknowledged. One upgrade then replaces driver, device plugin and kubelet of the node.
    """
    if context.obj is None:
        context.obj = Session(kubeconfig=kubeconfig, context=context_name, namespace=namespace)


def main() -> NoReturn:
    """The entry point of the installed program."""
    program.main()
