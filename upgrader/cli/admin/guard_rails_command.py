"""`upgrader guard-rails`: the manifests of a stack's guard rails, for `kubectl apply -f -`."""

from pathlib import Path

import click
import yaml

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.shared import cluster_reading
from upgrader.cli.shared.stack_edits import read_manifest, spec_of
from upgrader.stack import guard_rails as rails


@click.command("guard-rails")
@click.option("--stack", help="Name of the stack. Required if the cluster has several stacks.")
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the stack from this manifest instead of the cluster.",
)
@pass_session
def guard_rails(session: Session, *, stack: str | None, file: Path | None) -> None:
    """Print the PriorityClasses, quotas and tuned profile of a stack. Pass the output to `kubectl apply -f -`."""
    if stack is not None and file is not None:
        raise click.UsageError("--stack and --file are mutually exclusive")

    if file is not None:
        name, spec = read_manifest(file)
        stack_object = GpuStack(metadata=ObjectMeta(name=name), spec=spec_of(spec, f"stack {name}"))
    else:
        stack_object = session.run(lambda context: cluster_reading.stack_named(context, stack))
    command = rails.taint_command(stack_object)
    if command:
        click.echo(f"# the taint of the pool is not a manifest; set it with: {command}")
        click.echo(
            f"# for nodes that join later, set in the kubelet configuration: {rails.kubelet_setting(stack_object)}"
        )
        click.echo(
            "# pods with GPUs require a toleration, or the admission plugin ExtendedResourceToleration of"
            " the API server"
        )
    for manifest in rails.guard_rails(stack_object):
        click.echo("---")
        click.echo(yaml.safe_dump(manifest, sort_keys=False, width=110), nl=False)
