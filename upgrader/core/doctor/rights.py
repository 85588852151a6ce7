"""Rights on the API server, in the terms of RBAC; those of the controller are generated from deploy/."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity

SHOWN = 5
"""The most missing rights that a sentence names; the others are counted."""


class Scope(StrEnum):
    """The namespaces in which a right is granted."""

    CLUSTER = "cluster"  # everywhere
    OWN = "own"  # in the controller's namespace
    JOBS = "jobs"  # in every namespace whose jobs may be requested to checkpoint and stopped


class Right(Struct, frozen=True, kw_only=True):
    """One verb on one resource; a subresource follows a slash."""

    scope: Scope
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"

    @property
    def attributes(self) -> dict[str, str]:
        """The resource attributes of a SubjectAccessReview, without its namespace."""
        resource, _, subresource = self.resource.partition("/")
        asked = {"verb": self.verb, "group": self.group, "resource": resource}
        return asked | ({"subresource": subresource} if subresource else {})


CHANGES = tuple(
    Right(scope=Scope.CLUSTER, verb=verb, group="gpu-upgrader.io", resource=resource)
    for resource in ("gpustacks", "upgradeplans")
    for verb in ("create", "patch")
)
"""Rights for the writes of `apply`, `approve`, `pause` and similar commands."""

DIAGNOSES = tuple(
    Right(scope=Scope.CLUSTER, verb=verb, group=group, resource=resource)
    for verb, group, resource in (
        ("get", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("list", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("get", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    )
)
"""Rights for reads of `doctor` only: the controller does not need them, so that deploy/ does not grant them."""


def forecast_rights(rights: Iterable[Right]) -> tuple[Right, ...]:
    """Rights that a user needs for a forecast: it reads the objects that the controller reads."""
    return tuple(right for right in rights if right.verb in {"get", "list"} and right.scope is not Scope.JOBS)


def check_rights(
    subject: str, check: str, asked: int, missing: Sequence[Right], *, fix: str, severity: Severity
) -> Advice:
    """The result of a review of rights; `severity` and `fix` apply if a right is missing."""
    if not missing:
        return Advice(subject=subject, check=check, severity=Severity.OK, message=f"all {asked} rights are granted")
    shown = ", ".join(str(right) for right in missing[:SHOWN])
    rest = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    message = f"{len(missing)} of {asked} rights are missing: {shown}{rest}."
    return Advice(subject=subject, check=check, severity=severity, message=message, fix=fix)
