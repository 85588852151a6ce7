"""`upgrader node-labels`: the labels that this machine would have as a node."""

import click

from upgrader.cli.base.output_format import output_option, show


@click.command("node-labels")
@output_option
def node_labels(*, output: str) -> None:
    """Print the labels of node-feature-discovery for this machine. Reads local files only; does not use the
    cluster.
    """
    from pathlib import Path  # noqa: PLC0415 - a command imports only what it needs

    from upgrader.core.node_protocol.node_features import feature_labels, pending_kernel  # noqa: PLC0415
    from upgrader.node.host.features import read_features  # noqa: PLC0415
    from upgrader.node.host.host import Host  # noqa: PLC0415

    found = read_features(Host(root=Path("/")))
    labels = feature_labels(found)
    if output == "table":
        for name, value in labels.items():
            click.echo(f"{name}={value}")
        if pending := pending_kernel(found.kernels, found.kernel):
            click.echo(f"Kernel {pending} is installed and runs after the next reboot.", err=True)
    else:
        show(labels, output)


COMMANDS = (node_labels,)
