"""The services of an image: their entries in the manifest, their list for shells, and the check of their versions."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.node_protocol.driver_services import REQUIRED, SAME_BRANCH, DriverService, fits_driver
from upgrader.images.debian.values import Package
from upgrader.images.debian.versions import upstream_version
from upgrader.images.drivers.recipe.recipes import RecipeFolder

PROGRAMS = "usr/bin"
"""Folder of programs in the files of an image."""

_PROGRAM = re.compile(rf"{PROGRAMS}/[A-Za-z0-9][A-Za-z0-9._+-]*")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~]*")


class ShippedService(Struct, frozen=True, kw_only=True):
    """A service in the image: `program` is relative to the files of the image; `version` is that of its package."""

    name: DriverService
    version: str
    program: str
    sha256: str


def shipped_services(recipe: RecipeFolder, packages: Sequence[Package], files: Path) -> tuple[ShippedService, ...]:
    """The entries for the services of a recipe. A program that the package does not have has an empty digest.

    Args:
        recipe: the recipe.
        packages: the packages of its services, in the same order.
        files: the tree with the programs.
    """
    return tuple(
        ShippedService(
            name=service.name,
            version=upstream_version(package.version),
            program=f"{PROGRAMS}/{service.program}",
            sha256=_hash_program(files / PROGRAMS / service.program),
        )
        for service, package in zip(recipe.recipe.services, packages, strict=True)
    )


def service_lines(services: Sequence[ShippedService]) -> str:
    """The services for the program `service` of the image: NAME VERSION RULE NEED PROGRAM.

    RULE is `exact` or `branch`: the versions of drivers that it fits. NEED is `required` or `optional`.
    """
    return "".join(
        f"{service.name} {service.version} {'branch' if service.name in SAME_BRANCH else 'exact'} "
        f"{'required' if service.name in REQUIRED else 'optional'} {service.program}\n"
        for service in services
    )


def find_service_faults(services: Sequence[ShippedService], driver: str, files: Path | None) -> Iterator[str]:
    """Faults of the services of an image: a version that does not fit the driver, or a program that lacks it.

    A package may contain a program of another version than its own, so the version is also searched in the program,
    which prints it. The manifest may be forged: no link is followed out of `files`.
    """
    for service in services:
        if not _VERSION.fullmatch(service.version) or not _PROGRAM.fullmatch(service.program):
            yield f"service {service.name} has the version {service.version!r} and the program {service.program!r}"
        elif not fits_driver(service.name, service.version, driver):
            yield f"service {service.name} has version {service.version}"
        elif files is None or not _is_inside(files / service.program, files):
            yield f"service {service.name} has no program {service.program}"
        elif service.version.encode() not in (data := (files / service.program).read_bytes()):
            yield f"service {service.name}: {service.program} does not contain its version {service.version}"
        elif hashlib.sha256(data).hexdigest() != service.sha256:
            yield f"service {service.name}: {service.program} has another digest than the manifest"


def _is_inside(program: Path, files: Path) -> bool:
    return program.is_file() and program.resolve().is_relative_to(files.resolve())


def _hash_program(program: Path) -> str:
    return hashlib.sha256(program.read_bytes()).hexdigest() if program.is_file() else ""
