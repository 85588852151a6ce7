"""`upgrader images gc`: record driver images or packages that are not needed, and delete them later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.images import image_screen
from upgrader.cli.images.image_needs import read_needs
from upgrader.cli.images.image_options import open_site, store_options
from upgrader.core.driver_build.driver_builds import hash_facts
from upgrader.core.driver_image.image_garbage import (
    judge_images,
    record_after_dry_run,
    record_after_sweep,
    with_earlier_kernels,
)
from upgrader.core.driver_image.package_garbage import judge_packages
from upgrader.images.drivers.gc import package_sweep
from upgrader.images.drivers.gc.image_sweep import InRegistry, InStore, carry_out, read_usage_record, write_usage_record
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import auth_file, read_logins
from upgrader.process.places import cache_root, hold_lock

if TYPE_CHECKING:
    from upgrader.core.driver_image.image_garbage import Item, ItemFate, Uses
    from upgrader.images.drivers.builder.catalog import Cells
    from upgrader.images.drivers.gc.image_sweep import ImageSweep, Place, RegistryImages
    from upgrader.images.drivers.gc.package_sweep import SweptPackages
    from upgrader.images.drivers.workspace import Site


class GcOptions(Struct, frozen=True, kw_only=True):
    """Options of the command; `repository` defaults to the store, `contexts` to the current cluster."""

    repository: str | None
    packages: bool
    contexts: tuple[str, ...]
    grace: int
    remember: int
    record: Path | None
    yes: bool
    insecure_registry: tuple[str, ...]


@click.command()
@click.option(
    "--from",
    "repository",
    metavar="REPO",
    help="Registry and path to delete images from. Defaults to the store (--store).",
)
@click.option("--packages", is_flag=True, help="Delete packages of the cache instead of images.")
@click.option(
    "--context",
    "contexts",
    multiple=True,
    help="Context of a cluster that may need the images. Repeatable. Defaults to the current context.",
)
@click.option(
    "--grace",
    type=click.IntRange(0),
    default=14,
    show_default=True,
    metavar="DAYS",
    help="Time that an image must be unneeded before it is deleted.",
)
@click.option(
    "--remember",
    type=click.IntRange(0),
    default=90,
    show_default=True,
    metavar="DAYS",
    help="Time to keep images for a kernel after a node ran it.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that records unneeded images and the kernels that nodes ran. Defaults to a file in the cache.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Record unneeded images, and delete images that were unneeded for --grace. Without it, nothing is deleted.",
)
@click.option(
    "--insecure-registry", multiple=True, metavar="HOST:PORT", help="Registry to access without TLS. Repeatable."
)
@store_options
@output_option
@pass_session
def gc(session: Session, /, *, output: str, given: dict[str, Any], **said: Any) -> int:  # noqa: ANN401 - what click gives
    """Delete driver images that are no longer needed.

    An image is needed if a node runs, ran or will run its kernel, if an object of a cluster names it, or if
    matrix.toml contains it. With --packages, the command deletes packages instead, from the cache of this machine. A
    package is needed if it belongs to a kernel of an archive or of a needed image, to a driver or toolchain of the
    catalog, or to an image of the store.

    Specify every cluster that uses the images (--context). If a cluster cannot be read, nothing is deleted.
    """
    wish = GcOptions(**said)
    if wish.repository and given["store"]:
        raise click.UsageError("--from and --store are mutually exclusive")
    if wish.repository and wish.packages:
        raise click.UsageError("--packages cleans up the cache of this machine and cannot be used with --from")
    site = open_site(given)
    file = wish.record or cache_root() / "unused-images" / f"{hash_facts(_source_name(site, wish), 16)}.json"
    sweep = _sweep_packages if wish.packages else _sweep_images
    with hold_lock(file.with_name(f".{file.name}.lock")):
        swept = sweep(session, site, wish, file)
    if output == "table":
        render.print_renderable(image_screen.deletion_table(swept))
    else:
        print_value(swept, output)
    return exit_codes.DONE


def _source_name(site: "Site", wish: GcOptions) -> str:
    if wish.packages:
        return f"packages:{site.packages.folder.absolute()}"
    return wish.repository or f"oci:{site.shelf.folder.absolute()}"


def _sweep_packages(session: Session, site: "Site", wish: GcOptions, file: Path) -> "SweptPackages":
    """Judge and delete packages, locked against builds except in a dry run.

    Raises:
        PackagesInUseError: a build is running.
        ClusterError: a cluster cannot be read.
        ConfigurationError: the store of images, or the record, cannot be read.
    """
    current = site.current_catalog()  # before the lock, as reading an archive uses the packages
    with site.packages.exclusive_use() if wish.yes else nullcontext():
        catalog = site.last_catalog() or current
        known, package_names = package_sweep.needed_packages(catalog, site.shelf)
        packages = package_sweep.stored_packages(site.packages, package_names)
        fates = _judge_and_record(
            session, wish, site.matrix_cells(catalog), file, partial(judge_packages, packages, known)
        )
        if wish.yes:
            package_sweep.delete_packages(site.packages, fates)
    return package_sweep.sweep_report(fates, dry_run=not wish.yes)


def _sweep_images(session: Session, site: "Site", wish: GcOptions, file: Path) -> "ImageSweep":
    """List images first and read clusters last."""

    async def list_images() -> "RegistryImages":
        async with _open_place(site, wish) as place:
            return await place.list_images()

    async def carried_out() -> "ImageSweep":
        async with _open_place(site, wish) as place:
            return await carry_out(place, listing, fates, dry_run=not wish.yes)

    listing = asyncio.run(list_images())
    cells = site.matrix_cells(site.current_catalog())
    fates = _judge_and_record(session, wish, cells, file, partial(judge_images, listing.images))
    return asyncio.run(carried_out())


def _judge_and_record(
    session: Session,
    wish: GcOptions,
    cells: "Cells",
    file: Path,
    judge: "Callable[[Uses, Mapping[str, datetime], datetime, timedelta], Collection[ItemFate[Item]]]",
) -> "Collection[ItemFate[Item]]":
    """The fate of each image or package; the record for the next sweep is written before anything is deleted.

    A dry run records the running kernels and removes images and packages from the record, as that only keeps more of
    them; it adds none.
    """
    record, window = read_usage_record(file), timedelta(days=wish.remember)
    uses, now = read_needs(session, cells, wish.contexts)
    fates = judge(with_earlier_kernels(uses, record, now, window), record.unused, now, timedelta(days=wish.grace))
    unused = {fate.item.digest: fate.unused_since for fate in fates if fate.unused_since is not None}
    after = (
        record_after_sweep(unused, uses, record, now, window)
        if wish.yes
        else record_after_dry_run(unused, uses, record, now)
    )
    write_usage_record(file, after)
    return fates


@asynccontextmanager
async def _open_place(site: "Site", wish: GcOptions) -> "AsyncIterator[Place]":

    if wish.repository is None:
        yield InStore(site.shelf)
        return
    async with RegistryClient(insecure=wish.insecure_registry, logins=read_logins(auth_file())) as registry:
        yield InRegistry(registry, wish.repository, site.recipes)
