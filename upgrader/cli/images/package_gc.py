"""`upgrader images gc --packages`: mark packages that are not needed, and delete them later."""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from upgrader.cli.base.session import Session
from upgrader.cli.images.image_needs import needs

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
    marks_file: Path,
    dry_run: bool,
) -> "SweptPackages":
    """Mark and delete packages, locked against builds except in a dry run; marks are written before deletions.

    Raises:
        PackagesInUseError: a build is running.
        ClusterError: a cluster cannot be read.
        ConfigurationError: the store of images, or the file of marks, cannot be read.
    """
    from upgrader.core.driver_image import image_garbage, package_garbage  # noqa: PLC0415
    from upgrader.images.drivers.gc import package_sweep  # noqa: PLC0415
    from upgrader.images.drivers.gc.image_sweep import read_marks, write_marks  # noqa: PLC0415

    asked = site.catalog()  # before the lock, as reading an archive uses the packages
    with nullcontext() if dry_run else site.packages.alone():
        catalog = site.last_catalog() or asked
        known, names = package_sweep.known(catalog, site.shelf)
        packages, marks = package_sweep.stored(site.packages, names), read_marks(marks_file)
        uses, now = needs(session, site.cells(catalog), contexts)
        needed = image_garbage.remembering(uses, marks, now, window)
        fates = package_garbage.sweep_packages(packages, known, needed, marks.unused, now, grace)
        unused = {one.package.sha256: one.unused_since for one in fates if one.unused_since is not None}
        if dry_run:
            write_marks(marks_file, image_garbage.marks_looked(unused, uses, marks, now))
        else:
            write_marks(marks_file, image_garbage.marks_after(unused, uses, marks, now, window))
            package_sweep.delete(site.packages, fates)
    return package_sweep.told(fates, dry_run=dry_run)
