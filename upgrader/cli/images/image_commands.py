"""`upgrader build | images`: driver images, from the archives to the registry."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upgrader.cli.base import exit_codes, output_format, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.images import announcement, cells, image_screen
from upgrader.cli.images.failures import leaving_word, refuse_red
from upgrader.cli.images.image_gc import gc
from upgrader.cli.images.image_options import (
    FILE,
    build_options,
    cell_options,
    open_judge,
    open_publisher,
    open_signer,
    open_site,
    print_progress,
    store_options,
)
from upgrader.cli.images.verify_command import verify
from upgrader.core.driver_build.build_results import is_settled, termination_message
from upgrader.core.driver_build.driver_report import build_report, report_cell
from upgrader.core.driver_image.image_names import packages_name
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.publish import failures

if TYPE_CHECKING:
    from upgrader.core.driver_build.build_results import BuildResult


@click.command()
@cell_options
@click.option(
    "--packages",
    metavar="IMAGE",
    help="Build from this image of packages, which `images pack` has pushed, without access to package archives.",
)
@click.option("--termination-message", "message", type=click.Path(dir_okay=False, path_type=Path), hidden=True)
@build_options
@output_option
def build(
    *,
    wish: dict[str, Any],
    packages: str | None,
    message: Path | None,
    output: str,
    given: dict[str, Any],
) -> int:
    """Build one driver image on this machine, unless it exists, and print its digest.

    The build compiles the kernel modules, checks them against the symbols of the kernel, and loads them into that
    kernel in a virtual machine.
    """
    if given["public_key"] and not (given["key"] or packages):
        raise click.UsageError("--public-key requires --key or --packages")
    _refuse_half_key(given)
    result = _build_cell(wish, packages, message, given)
    if message is not None:
        message.write_bytes(termination_message(result))
    if output != "table":
        print_value(report_cell(result), output)
    refuse_red(result)
    if output == "table":
        click.echo(result.digest)
    return exit_codes.DONE


def _build_cell(
    wish: dict[str, Any], packages: str | None, message: Path | None, given: dict[str, Any]
) -> "BuildResult":

    with ExitStack() as using:
        with leaving_word(message, failures.machine_failure):
            site = open_site(given)
            site.check_key()
            publisher = open_publisher(site, given)
            judge = open_judge(given["public_key"]) if packages else None
            using.enter_context(
                site.packages.in_use(print_progress)
            )  # also between unpacking a bundle and building from it
        with leaving_word(message, failures.cell_failure):
            catalog, cell = cells.find_cell(
                site, cells.CellOptions(**wish), packages, given["insecure_registry"], judge
            )
        with leaving_word(message, failures.machine_failure), site.open_round(catalog, publisher=publisher) as builds:
            (result,) = builds.run([cell])
    return result


@click.group()
def images() -> None:
    """Manage driver images: discover kernels, build, verify, clean up."""


@images.command()
@store_options
@output_option
def discover(output: str, given: dict[str, Any]) -> int:
    """Read the available kernels and drivers from the package archives into the catalog, and show what is new."""
    catalog, news = open_site(given).update_catalog()
    if output != "table":
        print_value(news, output)
        return exit_codes.DONE
    table = render.empty_table("Kernel", "OS", "Compiler", "News")
    appeared, changed = set(news.appeared), set(news.changed)
    for kernel in catalog.discovery.kernels:
        word = "new" if kernel in appeared else "changed" if kernel in changed else ""
        table.add_row(
            kernel.release, kernel.os, kernel.compiler, word if kernel.in_archive else "no longer in the archive"
        )
    render.print_renderable(table)
    return exit_codes.DONE


@images.command()
@store_options
@output_option
def matrix(output: str, given: dict[str, Any]) -> int:
    """Show all images of matrix.toml and their state, from the latest stored catalog. Nothing is built."""
    site = open_site(given)
    cells = site.matrix_cells(site.current_catalog())
    wanted, unmatched = cells.list_cells()
    return _print_report(site.known_results(cells, wanted), unmatched, 0.0, output, None)


@images.command("build")
@click.option(
    "--changed/--as-known", default=True, help="Read the package archives first, or use the latest stored catalog."
)
@click.option(
    "--parallel",
    type=click.IntRange(1),
    help="Maximum number of images to build at the same time. Defaults to the number of cores.",
)
@click.option(
    "--report", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file, as JSON."
)
@build_options
@output_option
def build_matrix(*, changed: bool, parallel: int | None, out: Path | None, output: str, given: dict[str, Any]) -> int:
    """Build all images of matrix.toml that are missing or out of date. A failed build does not stop the others."""
    started = time.monotonic()
    if given["public_key"] and not given["key"]:
        raise click.UsageError("--key and --public-key must be used together")
    _refuse_half_key(given)
    site = open_site(given)
    publisher = open_publisher(site, given)
    cells = site.matrix_cells(site.update_catalog()[0] if changed else site.current_catalog())
    wanted, unmatched = cells.list_cells()
    with site.open_round(cells, publisher=publisher, parallel=parallel or 0) as builds:
        results = builds.run(wanted)
    code = _print_report(results, unmatched, time.monotonic() - started, output, out)
    return code if all(map(is_settled, results)) else 1


@images.command()
@cell_options
@click.option("--push", "repository", required=True, metavar="REPO", help="Registry and path to push the packages to.")
@click.option(
    "--insecure-registry", multiple=True, metavar="HOST:PORT", help="Registry to access without TLS. Repeatable."
)
@click.option(
    "--key",
    type=FILE,
    help="Private key (cosign.key) to sign the packages with. Its password is read from COSIGN_PASSWORD.",
)
@click.option(
    "--module-certificate", type=FILE, help="X.509 certificate (PEM) of the key that signs the modules in the cluster."
)
@store_options
def pack(
    *,
    wish: dict[str, Any],
    repository: str,
    insecure_registry: tuple[str, ...],
    key: Path | None,
    module_certificate: Path | None,
    given: dict[str, Any],
) -> int:
    """Push all packages that an image is built from, so that the cluster can build it without package archives.

    A builder with a public key accepts only signed packages (--key).
    """
    signer = open_signer(key)
    site = open_site({**given, "module_certificate": module_certificate})
    catalog, cell = cells.find_archive_cell(site, cells.CellOptions(**wish))
    name = packages_name(repository, cell.identity)
    click.echo(site.push_packages(catalog.define_cell(cell), name, insecure=insecure_registry, signer=signer))
    return exit_codes.DONE


@images.command()
@click.option("--stack", help="Create DriverImages only for the driver of this stack. Defaults to all stacks.")
@store_options
@pass_session
def announce(session: Session, *, stack: str | None, given: dict[str, Any]) -> int:
    """Create DriverImages for kernels of matrix.toml that no node runs yet.

    The command uses the latest catalog of `images discover` and does not read package archives. It deletes DriverImages
    that it created earlier and that are no longer needed.
    """
    site = open_site(given)
    catalog = site.last_catalog()
    if catalog is None:
        raise ConfigurationError("no stored catalog of the archives", resolution="Run `upgrader images discover`.")
    wanted, _ = site.matrix_cells(catalog).list_cells()
    identities = [cell.identity for cell in wanted]
    for line in session.run(lambda context: announcement.announce_images(context, identities, stack)):
        click.echo(line)
    return exit_codes.DONE


@images.command("list")
@store_options
@output_option
def list_images(output: str, given: dict[str, Any]) -> int:
    """List the images of the store (--store)."""
    site = open_site(given)
    results = [site.shelf.find_result(record.build_key) for record in site.shelf.list_records()]
    return _print_report([result for result in results if result is not None], (), 0.0, output, None)


images.add_command(verify)
images.add_command(gc)


def _refuse_half_key(given: dict[str, Any]) -> None:
    """Reject a key without a certificate, and a certificate without a key, which cannot sign modules."""
    if (given["module_key"] is None) is not (given["module_certificate"] is None):
        raise click.UsageError("--module-key and --module-certificate must be used together")


def _print_report(results: Any, unmatched: Any, seconds: float, output: str, out: Path | None) -> int:  # noqa: ANN401

    report = build_report(results, unmatched, seconds)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(output_format.format_value(report, "json"), encoding="utf-8")
        print_progress(f"report: {out}")
    if output == "table":
        render.print_renderable(image_screen.report_tables(report))
    else:
        print_value(report, output)
    return exit_codes.DONE
