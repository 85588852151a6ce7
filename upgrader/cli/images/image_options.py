"""Options that the commands about driver images share."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from upgrader.images.drivers.publish.bundle_registry import Judge, Signer
    from upgrader.images.drivers.publish.publication import Publisher
    from upgrader.images.drivers.workspace import Site
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
            self.fail(f"{value!r} is no store: write oci:DIR", param, ctx)
        return Path(folder)


_STORE = {
    "store": click.option(
        "--store", type=StoreType(), help="OCI layout that keeps the images; in the user's cache by default.",
    ),
    "recipes": click.option(
        "--recipes", type=FOLDER, help="Folder of matrix and recipes instead of driver-images/.",
    ),
}  # fmt: skip
_BUILD = {
    "cores": click.option("--cores", type=click.IntRange(1), help="For all builds together; all by default."),
    "memory": click.option(
        "--memory", type=click.IntRange(1), metavar="MIB",
        help="For all builds together; four fifths of what is free by default.",
    ),
    "module_key": click.option(
        "--module-key", type=FILE, help="Private RSA key (PEM) that modules are signed with.",
    ),
    "module_certificate": click.option(
        "--module-certificate", type=FILE, help="Its X.509 certificate (PEM), which the nodes' kernels know.",
    ),
    "repository": click.option(
        "--push", "repository", metavar="REPO", help="registry/repository that gets the images.",
    ),
    "insecure_registry": click.option(
        "--insecure-registry", multiple=True, metavar="HOST:PORT", help="Spoken to without TLS; repeatable.",
    ),
    "key": click.option(
        "--key", type=FILE, help="cosign.key that images are signed with; its password in COSIGN_PASSWORD.",
    ),
    "public_key": click.option("--public-key", type=FILE, help="cosign.pub that consumers verify with."),
}  # fmt: skip


_WISH = {
    "driver": click.option("--driver", required=True, metavar="V", help="Version, as 535.261.03."),
    "kernel": click.option("--kernel", required=True, metavar="K", help="Release as `uname -r` gives it."),
    "recipe": click.option("--recipe", default="", metavar="R", help="Needed where several recipes have the version."),
    "os": click.option("--os", default="", metavar="NAME", help="Where several distributions have the kernel."),
    "modules": click.option(
        "--modules", multiple=True, metavar="M", help="Only these and those that they need; repeatable.",
    ),
}  # fmt: skip


def cell_options(command: Command) -> Command:
    """Which image is meant: `wish` of a command."""
    return _grouped(command, _WISH, "wish")


def store_options(command: Command) -> Command:
    """Where images and recipes are: `given` of a command."""
    return _grouped(command, _STORE)


def build_options(command: Command) -> Command:
    """All that a build may be told: `given` of a command."""
    return _grouped(command, {**_STORE, **_BUILD})


def _grouped(command: Command, chosen: Mapping[str, Callable[[Command], Command]], name: str = "given") -> Command:
    @functools.wraps(command)
    def gathered(*args: Any, **values: Any) -> Any:  # noqa: ANN401 - what click gives
        values[name] = {one: values.pop(one) for one in chosen}
        return command(*args, **values)

    offered: Command = gathered
    for option in reversed(list(chosen.values())):
        offered = option(offered)
    return offered


def open_site(given: Mapping[str, Any]) -> "Site":
    """The site of the options that a command was given."""
    from upgrader.images.drivers.workspace import Settings, Site  # noqa: PLC0415

    key, certificate = given.get("module_key"), given.get("module_certificate")
    if key is not None and certificate is None:
        raise click.UsageError("--module-key and --module-certificate belong together")
    settings = Settings(
        store=given.get("store"),
        recipes=given.get("recipes"),
        module_key=(key, certificate) if key and certificate else None,
        module_certificate=certificate,
        cores=given.get("cores") or 0,
        memory_mib=given.get("memory") or 0,
    )
    return Site(settings, tell)


def open_publisher(site: "Site", given: Mapping[str, Any]) -> "Publisher | None":
    """Who pushes; None where nobody is asked to."""
    repository = given.get("repository")
    key, public = given.get("key"), given.get("public_key")
    if key is not None and public is None:
        raise click.UsageError("--key and --public-key belong together: what is signed is verified again")
    if repository is None:
        if key is not None:
            raise click.UsageError("--key signs what is pushed: name a registry with --push")
        return None
    from upgrader.images import trust  # noqa: PLC0415
    from upgrader.images.drivers.publish.publication import Publisher, Trust  # noqa: PLC0415

    keys = None
    if key is not None and public is not None:
        keys = Trust(key=trust.signing_key(key), public=trust.public_key(public), cosign=open_cosign())
    return Publisher(repository, site.shelf, insecure=given.get("insecure_registry") or (), keys=keys, progress=tell)


def open_judge(public: Path | None) -> "Judge | None":
    """Whose bundles of packages are built from; None where nobody said, which is told when one is pulled."""
    if public is None:
        return None
    from upgrader.images import trust  # noqa: PLC0415
    from upgrader.images.drivers.publish.bundle_registry import Judge  # noqa: PLC0415

    return Judge(public=trust.public_key(public), cosign=open_cosign())


def open_signer(key: Path | None) -> "Signer | None":
    """Who signs a bundle of packages; None where nobody does."""
    if key is None:
        return None
    from upgrader.images import trust  # noqa: PLC0415
    from upgrader.images.drivers.publish.bundle_registry import Signer  # noqa: PLC0415

    return Signer(key=trust.signing_key(key), cosign=open_cosign())


def open_cosign() -> "Cosign":
    """The cosign of UPGRADER_COSIGN, else of PATH, else the one that is built for clusters here.

    Raises:
        ConfigurationError: UPGRADER_COSIGN names none.
        DevClusterError: it cannot be built.
    """
    import os  # noqa: PLC0415
    import shutil  # noqa: PLC0415

    from upgrader.images import trust  # noqa: PLC0415

    named = os.environ.get("UPGRADER_COSIGN", "")
    if named or shutil.which("cosign"):
        return trust.find(named or "cosign")
    from upgrader import devcluster  # noqa: PLC0415

    return trust.Cosign(devcluster.cosign(tell))


def tell(line: str) -> None:
    """One line to standard error."""
    click.echo(line, err=True)
