"""`upgrader images gc --packages`: record packages that are not needed, and delete them later."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from upgrader.cli.base.session import Session
from upgrader.cli.images.image_needs import read_needs
from upgrader.core.driver_image import image_garbage, package_garbage
from upgrader.images.drivers.gc import package_sweep
from upgrader.images.drivers.gc.image_sweep import read_usage_record, write_usage_record

if TYPE_CHECKING:
    from upgrader.images.drivers.gc.package_sweep import SweptPackages
    from upgrader.images.drivers.workspace import Site


def sweep_packages(
    session: Session,
    site: "Site",
    *,
    contexts: Sequence[str],
    grace: timedelta,
    window: timedelta,
    record_file: Path,
    dry_run: bool,
) -> "SweptPackages":
    """Record and delete unneeded packages, locked against builds except in a dry run.

    The record is written before deletions.

    Raises:
        PackagesInUseError: a build is running.
        ClusterError: a cluster cannot be read.
        ConfigurationError: the store of images, or the record, cannot be read.
    """
    asked = site.current_catalog()  # before the lock, as reading an archive uses the packages
    with nullcontext() if dry_run else site.packages.exclusive_use():
        catalog = site.last_catalog() or asked
        known, names = package_sweep.needed_packages(catalog, site.shelf)
        packages, record = package_sweep.stored_packages(site.packages, names), read_usage_record(record_file)
        uses, now = read_needs(session, site.matrix_cells(catalog), contexts)
        needed = image_garbage.with_earlier_kernels(uses, record, now, window)
        fates = package_garbage.sweep_packages(packages, known, needed, record.unused, now, grace)
        unused = {fate.package.sha256: fate.unused_since for fate in fates if fate.unused_since is not None}
        if dry_run:
            write_usage_record(record_file, image_garbage.record_after_dry_run(unused, uses, record, now))
        else:
            write_usage_record(record_file, image_garbage.record_after_sweep(unused, uses, record, now, window))
            package_sweep.delete_packages(site.packages, fates)
    return package_sweep.sweep_report(fates, dry_run=dry_run)
