"""`upgrader images gc`: driver images that no cluster needs are marked, and later deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from upgrader.cli import exits
from upgrader.cli.images_options import open_site, store_options
from upgrader.cli.session import Session, pass_session
from upgrader.cli.wire import output_option, show

if TYPE_CHECKING:
    from upgrader.core.image_garbage import Uses
    from upgrader.images.drivers.site import Site
    from upgrader.images.drivers.sweeping import Listing, Place, Swept
    from upgrader.reconcile.context import Context


class Wish(Struct, frozen=True, kw_only=True):
    """What was said; without `repository` the store is meant, without `contexts` the current cluster."""

    repository: str | None
    contexts: tuple[str, ...]
    grace: int
    remember: int
    marks: Path | None
    yes: bool
    insecure_registry: tuple[str, ...]


@click.command()
@click.option("--from", "repository", metavar="REPO", help="registry/path: its images, and not the store's.")
@click.option("--context", "contexts", multiple=True, help="Cluster that may need images; repeatable. Or the current.")
@click.option(
    "--grace", type=click.IntRange(0), default=14, show_default=True, metavar="DAYS", help="Unused for so long."
)
@click.option(
    "--remember",
    type=click.IntRange(0),
    default=90,
    show_default=True,
    metavar="DAYS",
    help="A kernel that a node was seen to run within so long is kept as one that ran before.",
)
@click.option(
    "--marks",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that says since when, and what ran before; or the cache.",
)
@click.option("--yes", is_flag=True, help="Mark and delete; without it, show, and remember what is needed.")
@click.option("--insecure-registry", multiple=True, metavar="HOST:PORT", help="Spoken to without TLS; repeatable.")
@store_options
@output_option
@pass_session
def gc(session: Session, /, *, output: str, given: dict[str, Any], **said: Any) -> int:  # noqa: ANN401 - what click gives
    """Delete the images of kernels that no node runs, ran or is to run, that no object names and the matrix lacks.

    Each cluster that uses these images must be named: where one cannot be read, nothing is deleted.
    """
    from upgrader.cli import images_screen, render  # noqa: PLC0415
    from upgrader.core.driver_builds import digits  # noqa: PLC0415
    from upgrader.process.places import cache_root, locked  # noqa: PLC0415

    wish = Wish(**said)
    if wish.repository and given["store"]:
        raise click.UsageError("--from and --store: images of which of both?")
    site = open_site(given)
    source = wish.repository or f"oci:{site.shelf.folder.absolute()}"
    file = wish.marks or cache_root() / "unused-images" / f"{digits(source, 16)}.json"
    with locked(file.with_name(f".{file.name}.lock")):
        found = _sweep(session, site, wish, file)
    if output == "table":
        render.show(images_screen.swept(found))
    else:
        show(found, output)
    return exits.DONE


def _sweep(session: Session, site: "Site", wish: Wish, file: Path) -> "Swept":
    """Images are listed first and clusters looked at last; marks are kept before anything is deleted.

    A dry run keeps what it saw running, and takes marks away, as that only saves images; it marks none.
    """
    import asyncio  # noqa: PLC0415

    from upgrader.core.image_garbage import marks_after, marks_looked, remembering, sweep  # noqa: PLC0415
    from upgrader.images.drivers.sweeping import carry_out, read_marks, write_marks  # noqa: PLC0415

    async def listed() -> "Listing":
        async with _place(site, wish) as place:
            return await place.listing()

    async def carried_out() -> "Swept":
        async with _place(site, wish) as place:
            return await carry_out(place, listing, fates, dry_run=not wish.yes)

    listing, marks = asyncio.run(listed()), read_marks(file)
    uses, now = _uses(session, site, wish)
    window = timedelta(days=wish.remember)
    needed = remembering(uses, marks, now, window)
    fates = sweep(listing.images, needed, marks.unused, now, timedelta(days=wish.grace))
    after = marks_after(fates, uses, marks, now, window) if wish.yes else marks_looked(fates, uses, marks, now)
    write_marks(file, after)
    return asyncio.run(carried_out())


def _uses(session: Session, site: "Site", wish: Wish) -> "tuple[Uses, datetime]":
    """What all clusters and the matrix need, and the time of the last look.

    Raises:
        ClusterError: one of the clusters does not say, or shows no node.
    """
    from upgrader.core.errors import ClusterError  # noqa: PLC0415
    from upgrader.core.image_garbage import Uses  # noqa: PLC0415
    from upgrader.reconcile.image_uses import read_uses  # noqa: PLC0415

    async def look(context: "Context") -> tuple[Uses, datetime]:
        return await read_uses(context.cluster), context.clock.now()

    cells, _ = site.cells(site.catalog()).wanted()
    whole = Uses(wanted=frozenset(one.identity.kernel for one in cells))
    moments: list[datetime] = []
    clusters = [session.of_context(name) for name in wish.contexts] or [session]
    for name, cluster in zip(wish.contexts or ("the cluster",), clusters, strict=True):
        seen, moment = cluster.run(look)
        if not seen.running:
            raise ClusterError(
                f"{name} shows no node's kernel, so nothing is known of what it needs, and nothing is deleted",
                resolution="Leave it out if it really has no nodes.",
            )
        whole, moments = whole.union(seen), [*moments, moment]
    return whole, max(moments)


@asynccontextmanager
async def _place(site: "Site", wish: Wish) -> "AsyncIterator[Place]":
    from upgrader.images.drivers.sweeping import InRegistry, InStore  # noqa: PLC0415
    from upgrader.images.registry import RegistryClient  # noqa: PLC0415
    from upgrader.images.registry_login import auth_file, logins  # noqa: PLC0415

    if wish.repository is None:
        yield InStore(site.shelf)
        return
    async with RegistryClient(insecure=wish.insecure_registry, logins=logins(auth_file())) as registry:
        yield InRegistry(registry, wish.repository, site.recipes)
