"""Common options of the commands for driver images."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upgrader.images import trust
from upgrader.images.drivers.publish.bundle_registry import BundleTrust, Signer
from upgrader.images.drivers.publish.publication import PublicationKeys, Publisher
from upgrader.images.drivers.workspace import Site, WorkspaceSettings

if TYPE_CHECKING:
    from upgrader.images.trust import Cosign

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


Command = Callable[..., Any]


class StoreType(click.ParamType[Path]):
    """`oci:DIR`."""

    name = "oci:DIR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401
        """The folder."""
        if isinstance(value, Path):
            return value
        kind, _, folder = str(value).partition(":")
        if kind != "oci" or not folder:
            self.fail(f"{value!r} is not a store: use oci:DIR", param, ctx)
        return Path(folder)


_STORE = {
    "store": click.option(
        "--store",
        type=StoreType(),
        help="OCI layout that stores the images. Defaults to oci:~/.cache/upgrader/driver-images.",
    ),
    "recipes": click.option(
        "--recipes",
        type=FOLDER,
        help="Folder with matrix.toml and the recipes. Defaults to driver-images/ of the checkout.",
    ),
}
_BUILD = {
    "cores": click.option(
        "--cores",
        type=click.IntRange(1),
        help="Maximum number of cores that all builds together use. Defaults to all cores.",
    ),
    "memory": click.option(
        "--memory",
        type=click.IntRange(1),
        metavar="MIB",
        help="Maximum memory that all builds together use. Defaults to four fifths of the free memory.",
    ),
    "module_key": click.option(
        "--module-key",
        type=FILE,
        help="Private RSA key (PEM) to sign kernel modules with. Without it, modules are not signed.",
    ),
    "module_certificate": click.option(
        "--module-certificate",
        type=FILE,
        help="X.509 certificate (PEM) of --module-key. The kernels of the nodes must trust it.",
    ),
    "repository": click.option(
        "--push",
        "repository",
        metavar="REPO",
        help="Registry and path to push the images to. Without it, images are only stored on this machine.",
    ),
    "insecure_registry": click.option(
        "--insecure-registry",
        multiple=True,
        metavar="HOST:PORT",
        help="Registry to access without TLS. Repeatable.",
    ),
    "key": click.option(
        "--key",
        type=FILE,
        help="Private key (cosign.key) to sign images with. Its password is read from COSIGN_PASSWORD.",
    ),
    "public_key": click.option(
        "--public-key", type=FILE, help="Public key (cosign.pub) to verify signatures with. Required with --key."
    ),
}


_WISH = {
    "driver": click.option("--driver", required=True, metavar="V", help="Driver version, for example 535.261.03."),
    "kernel": click.option("--kernel", required=True, metavar="K", help="Kernel release, as printed by `uname -r`."),
    "recipe": click.option(
        "--recipe",
        default="",
        metavar="R",
        help="Recipe: the name of a folder in --recipes. Required if several recipes have the driver version.",
    ),
    "os": click.option(
        "--os",
        default="",
        metavar="NAME",
        help="Code name of the distribution, for example bookworm. Required if several distributions have the kernel.",
    ),
    "modules": click.option(
        "--modules",
        multiple=True,
        metavar="M",
        help="Build only this module and its dependencies. Repeatable. Defaults to all modules of the recipe.",
    ),
}


def cell_options(command: Command) -> Command:
    """Add the options that select an image; the command gets them as `wish`."""
    return _group_options(command, _WISH, "wish")


def store_options(command: Command) -> Command:
    """Add the options for the store and the recipes; the command gets them as `given`."""
    return _group_options(command, _STORE)


def build_options(command: Command) -> Command:
    """Add all options of a build; the command gets them as `given`."""
    return _group_options(command, {**_STORE, **_BUILD})


def _group_options(
    command: Command, chosen: Mapping[str, Callable[[Command], Command]], name: str = "given"
) -> Command:
    @functools.wraps(command)
    def collect_options(*args: Any, **values: Any) -> Any:  # noqa: ANN401 - what click gives
        values[name] = {option: values.pop(option) for option in chosen}
        return command(*args, **values)

    offered: Command = collect_options
    for option in reversed(list(chosen.values())):
        offered = option(offered)
    return offered


def open_site(given: Mapping[str, Any]) -> "Site":
    """The site for the options of a command."""
    key, certificate = given.get("module_key"), given.get("module_certificate")
    if key is not None and certificate is None:
        raise click.UsageError("--module-key and --module-certificate must be used together")
    settings = WorkspaceSettings(
        store=given.get("store"),
        recipes=given.get("recipes"),
        module_key=(key, certificate) if key and certificate else None,
        module_certificate=certificate,
        cores=given.get("cores") or 0,
        memory_mib=given.get("memory") or 0,
    )
    return Site(settings, print_progress)


def open_publisher(site: "Site", given: Mapping[str, Any]) -> "Publisher | None":
    """The publisher of images; None without --push."""
    repository = given.get("repository")
    key, public = given.get("key"), given.get("public_key")
    if key is not None and public is None:
        raise click.UsageError("--key and --public-key must be used together")
    if repository is None:
        if key is not None:
            raise click.UsageError("--key requires --push")
        return None

    keys = None
    if key is not None and public is not None:
        keys = PublicationKeys(key=trust.signing_key(key), public=trust.public_key(public), cosign=open_cosign())
    return Publisher(
        repository, site.shelf, insecure=given.get("insecure_registry") or (), keys=keys, progress=print_progress
    )


def open_judge(public: Path | None) -> "BundleTrust | None":
    """The judge of signatures of bundles; None without --public-key, which is reported when a bundle is pulled."""
    if public is None:
        return None

    return BundleTrust(public=trust.public_key(public), cosign=open_cosign())


def open_signer(key: Path | None) -> "Signer | None":
    """The signer of bundles of packages; None without --key."""
    if key is None:
        return None

    return Signer(key=trust.signing_key(key), cosign=open_cosign())


def open_cosign() -> "Cosign":
    """The cosign of UPGRADER_COSIGN, else of PATH.

    Raises:
        ConfigurationError: there is no such program.
    """
    return trust.find_cosign(os.environ.get("UPGRADER_COSIGN") or "cosign")


def print_progress(line: str) -> None:
    """Print one line to standard error."""
    click.echo(line, err=True)
