"""`upgrader node-labels`: the labels that this machine would have as a node."""

from pathlib import Path

import click

from upgrader.cli.base.output_format import output_option, print_value
from upgrader.core.node_protocol.node_features import feature_labels, pending_kernel
from upgrader.node.host.features import read_features
from upgrader.node.host.host import Host


@click.command("node-labels")
@output_option
def node_labels(*, output: str) -> None:
    """Print the labels of node-feature-discovery for this machine.

    The labels are computed from files of this machine. The cluster is not read.
    """
    features = read_features(Host(root=Path("/")))
    labels = feature_labels(features)
    if output == "table":
        for name, value in labels.items():
            click.echo(f"{name}={value}")
        if pending := pending_kernel(features.kernels, features.kernel):
            click.echo(f"Kernel {pending} is installed and runs after the next reboot.", err=True)
    else:
        print_value(labels, output)
