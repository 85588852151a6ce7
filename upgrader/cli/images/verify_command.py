"""`upgrader images verify`: check one driver image."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.images import image_screen
from upgrader.cli.images.image_options import FILE, open_cosign, open_site, print_progress
from upgrader.core.errors import UncheckedError, UnverifiedError
from upgrader.images import trust
from upgrader.images.drivers.publish.verification import InspectionOptions, examine_image, examine_store
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import auth_file, read_logins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from upgrader.core.driver_build.driver_builds import Verdict
    from upgrader.images.drivers.publish.verification import ExaminedImage

_STORE = "oci:"


@click.command()
@click.argument("image")
@click.option(
    "--public-key",
    type=FILE,
    help="Public key (cosign.pub) to verify the signature with. Required for an image in a registry.",
)
@click.option("--recipe", default="", metavar="R", help="Expected recipe. Defaults to the label of the image.")
@click.option("--driver", default="", metavar="V", help="Expected driver version. Defaults to the label of the image.")
@click.option("--kernel", default="", metavar="K", help="Expected kernel release. Defaults to the label of the image.")
@click.option("--flavour", default="", metavar="F", help="Expected flavour. Defaults to the label of the image.")
@click.option(
    "--vendor", default="", metavar="NAME", help="Expected vendor of the driver. Defaults to the label of the image."
)
@click.option(
    "--os",
    default="",
    metavar="NAME",
    help="Expected code name of the distribution. Defaults to the label of the image.",
)
@click.option("--arch", default="", metavar="NAME", help="Expected architecture. Defaults to the label of the image.")
@click.option(
    "--module-certificate",
    type=FILE,
    help="X.509 certificate (PEM) of the key that must have signed the modules. Without it, "
    "signatures of modules are not checked.",
)
@click.option("--boot", "boots", is_flag=True, help="Also boot the kernel in a virtual machine and load the modules.")
@click.option(
    "--insecure-registry", multiple=True, metavar="HOST:PORT", help="Registry to access without TLS. Repeatable."
)
@output_option
def verify(
    *,
    image: str,
    public_key: Path | None,
    module_certificate: Path | None,
    boots: bool,
    insecure_registry: tuple[str, ...],
    output: str,
    **identity: str,
) -> int:
    """Verify IMAGE: registry/name:tag, registry/name@sha256:... or oci:DIR[@sha256:...].

    The command verifies the signature, the SBOM and the provenance with the key, the layers and the modules by their
    digests, and the modules by the symbols of their kernel if its packages are on this machine. See
    docs/reference/cli.md for all checks.
    """
    given = {name: value for name, value in identity.items() if value}
    site = open_site({})
    looks = InspectionOptions(kernels=site.kernel_trees(), certificate=module_certificate, boots=boots)
    if image.startswith(_STORE):
        folder, _, digest = image.removeprefix(_STORE).partition("@")
        examined = examine_store(Path(folder), digest, given, looks)
    else:
        if public_key is None:
            raise click.UsageError("--public-key is required for an image in a registry")
        examined = asyncio.run(_examine_in_registry(image, given, looks, public_key, insecure_registry))
    _print_verdicts(examined, looks, output)
    return exit_codes.DONE


async def _examine_in_registry(
    image: str, given: dict[str, str], looks: "InspectionOptions", public_key: Path, insecure: tuple[str, ...]
) -> "ExaminedImage":

    key, cosign = trust.public_key(public_key), open_cosign()
    async with RegistryClient(insecure=insecure, logins=read_logins(auth_file())) as registry:
        return await examine_image(image, given, looks, key=key, cosign=cosign, registry=registry)


def _print_verdicts(examined: "ExaminedImage", looks: "InspectionOptions", output: str) -> None:
    """Print the verdicts and the assumed identity; raises an error if the image is not verified."""
    unchecked = [
        verdict for verdict in examined.verdicts if verdict.passed is None and verdict.check not in looks.skipped_checks
    ]
    if output == "table":
        by = f"; {', '.join(examined.by_label)} from its labels" if examined.by_label else ""
        print_progress(f"{examined.image}: assumed identity {examined.identity}{by}")
        render.print_renderable(image_screen.verdict_table(examined.verdicts))
    else:
        print_value(_wire_object(examined, verified=not examined.failed_checks and not unchecked), output)
    if examined.failed_checks:
        raise UnverifiedError(
            f"{examined.image} is not valid; failed checks: {', '.join(one.check for one in examined.failed_checks)}",
            details=_join_reasons(examined.failed_checks),
        )
    if unchecked:
        raise UncheckedError(
            f"{examined.image} is not verified; checks not run: {', '.join(one.check for one in unchecked)}",
            details=_join_reasons(unchecked),
        )


def _join_reasons(verdicts: "Sequence[Verdict]") -> str:
    return "\n".join(f"{verdict.check}: {verdict.reason}" for verdict in verdicts)


def _wire_object(examined: "ExaminedImage", *, verified: bool) -> dict[str, Any]:
    return {
        "image": examined.image,
        "identity": examined.identity,
        "byLabel": examined.by_label,
        "verified": verified,
        "checks": examined.verdicts,
    }
