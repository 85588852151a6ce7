"""`upgrader dev | demo`: the embedded cluster on this machine, and the demo on it."""

import asyncio
from pathlib import Path

import click

from upgrader.cli.base import exit_codes, output_format, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.core.errors import RolloutFailedError
from upgrader.images.archive import write_archive
from upgrader.images.product import Images
from upgrader_dev import devcluster
from upgrader_dev.commands import figures
from upgrader_dev.demo import verdict, virtual_play
from upgrader_dev.demo.play import play_demo
from upgrader_dev.devcluster.base.spec import MOST_FAST_KWOK

SIMULATED_GPUS = (
    "Real: API server, scheduler, kubelets, containerd, kernels, NVIDIA's modules, jobs and their checkpoints.\n"
    "Simulated: the GPUs. A small module emulates a bridge of NVIDIA in each kernel, so that the driver stays loaded."
)
SIMULATED = (
    "Real: API server, scheduler, kubelets, containerd, containers, device manager, jobs and their checkpoints.\n"
    "Simulated: the GPUs and their driver (no kernel module), and kwok nodes (API objects only)."
)

name_argument = click.argument("name", default="dev")
OUT = click.Path(dir_okay=False, path_type=Path)


@click.group()
def dev() -> None:
    """Manage embedded Kubernetes clusters on this machine, in their own network namespaces."""


@dev.command()
@name_argument
@click.option(
    "--boxes",
    type=click.IntRange(0, 60),
    default=2,
    show_default=True,
    help="Number of nodes with a real kubelet and the kernel of this machine.",
)
@click.option(
    "--vm-nodes",
    type=click.IntRange(0, 8),
    default=0,
    show_default=True,
    help="Number of virtual machines with a real kubelet and their own kernel.",
)
@click.option(
    "--kwok",
    type=click.IntRange(0, 5000),
    default=0,
    show_default=True,
    help="Number of nodes that are only API objects (kwok).",
)
@click.option("--kubelet", default="1.34.4", show_default=True, help="Version of the real kubelets.")
def up(name: str, boxes: int, vm_nodes: int, kwok: int, kubelet: str) -> int:
    """Start the cluster NAME (default: dev) and print the path of its kubeconfig."""
    fast = kwok <= MOST_FAST_KWOK
    spec = devcluster.ClusterSpec(name=name, boxes=boxes, vms=vm_nodes, kwok=kwok, kubelet=kubelet, fast=fast)
    cluster = devcluster.start_cluster(spec, _print_progress)
    click.echo(cluster.kubeconfig)
    click.echo(f"  export KUBECONFIG={cluster.kubeconfig}\n  registry: {cluster.registry} (plain HTTP)", err=True)
    return exit_codes.DONE


@dev.command()
@name_argument
def down(name: str) -> int:
    """Delete the cluster NAME (default: dev)."""
    exists = name in devcluster.cluster_names()
    devcluster.delete_cluster(name)
    click.echo(f"cluster {name} deleted" if exists else f"cluster {name} not found", err=True)
    return exit_codes.DONE


@dev.command()
def cosign() -> int:
    """Build cosign, unless it is in the cache, and print its path. Set UPGRADER_COSIGN to it to sign driver images."""
    click.echo(devcluster.cosign_program(_print_progress))
    return exit_codes.DONE


@dev.command()
def binaries() -> int:
    """Build the programs of the embedded cluster that are not in the cache. Takes about 13 minutes on two cores."""
    for path in devcluster.build_all(_print_progress):
        click.echo(path)
    return exit_codes.DONE


@dev.command()
@output_option
def status(output: str) -> int:
    """Show the clusters on this machine."""
    statuses = [devcluster.cluster_status(name) for name in devcluster.cluster_names()]
    if output == "table":
        render.print_renderable(figures.cluster_table(statuses))
    else:
        print_value(statuses, output)
    return exit_codes.DONE


@dev.command()
@click.option("--output", "out", type=OUT, required=True, help="File to write the image to, as an OCI archive.")
@click.option(
    "--base-image",
    envvar="BASE_IMAGE",
    default="",
    help="Base image with Python 3.11 and busybox: the folder of an OCI layout, or a name that "
    "buildah can pull. Defaults to an image that is built from the Debian archive of this "
    "machine.",
)
@click.option(
    "--node",
    is_flag=True,
    help="Build the image of the pods on nodes (UPGRADER_NODE_IMAGE) instead of the image of the controller.",
)
@click.option(
    "--builder",
    is_flag=True,
    help="Build the image of the pods that build driver images (UPGRADER_BUILDER_IMAGE) instead of "
    "the image of the controller.",
)
@click.option(
    "--simulated-gpus",
    is_flag=True,
    help="Add the vendor `sim`, for clusters without GPUs: its manifests to the image of the "
    "controller, or with --node the programs of its operands.",
)
def image(out: Path, base_image: str, *, node: bool, builder: bool, simulated_gpus: bool) -> int:
    """Build the image of the controller, of the pods on nodes, or of the pods that build driver images."""
    if builder and (node or simulated_gpus):
        raise click.UsageError("--builder cannot be used with --node or --simulated-gpus")
    with Images(_print_progress, base_image=base_image) as images:
        if node:
            layout = images.simulated_gpus_image() if simulated_gpus else images.node_image()
        elif builder:
            layout = images.builder_image(devcluster.cosign_program(_print_progress))
        else:
            layout = images.upgrader_image(devcluster.cosign_program(_print_progress), simulated_gpus=simulated_gpus)
        write_archive(layout, out)
    click.echo(layout.image.digest)
    click.echo(f"{out}: {layout.size / 1e6:.0f} MB", err=True)
    return exit_codes.DONE


@click.command()
@click.option(
    "--vm-nodes",
    type=click.IntRange(2, 4),
    help="Number of virtual machines with real kernels and NVIDIA's real modules. Defaults to 2.",
)
@click.option(
    "--boxes",
    type=click.IntRange(2, 20),
    help="Number of nodes with a real kubelet and the kernel of this machine, instead of --vm-nodes. Defaults to 4.",
)
@click.option(
    "--kwok",
    type=click.IntRange(0, 100),
    help="Number of nodes that are only API objects (kwok), in addition to --boxes. Defaults to 20.",
)
@click.option("--report", "out", type=OUT, help="Write the measured values to this file, as JSON.")
def demo(vm_nodes: int | None, boxes: int | None, kwok: int | None, out: Path | None) -> int:
    """Upgrade driver, device plugin and kubelet of nodes with training jobs, and show that no step is lost.

    The demo uses real kubelets. On virtual nodes NVIDIA's modules are real, and one node reboots into another kernel.
    If virtual nodes cannot run on this machine, the demo prints the reason and runs on boxes.
    """
    on_boxes = boxes is not None or kwok is not None
    if vm_nodes is not None and on_boxes:
        raise click.UsageError("--vm-nodes cannot be used with --boxes or --kwok")
    lacking = "" if on_boxes or vm_nodes is not None else devcluster.lacking_for_virtual_nodes()
    if lacking:
        _print_progress(f"Running on boxes, because virtual nodes cannot run on this machine: {lacking}")
    if on_boxes or lacking:
        _print_progress(SIMULATED)
        report = asyncio.run(play_demo(_print_progress, click.echo, **_without_none(boxes=boxes, kwok=kwok)))
    else:
        _print_progress(SIMULATED_GPUS)
        report = asyncio.run(virtual_play.play_demo(_print_progress, click.echo, **_without_none(vms=vm_nodes)))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(output_format.format_value(report, "json"))
    render.print_renderable(figures.demo_tables(report))
    if missed := verdict.find_faults(report):
        raise RolloutFailedError("the demo did not give the expected result", details="\n".join(missed))
    return exit_codes.DONE


def _without_none(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def _print_progress(line: str) -> None:
    click.echo(line, err=True)
