"""Rights on the API server, as RBAC has them; which ones the controller needs is generated from deploy/."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity

SHOWN = 5
"""Missing rights that a sentence names; the others are counted."""


class Scope(StrEnum):
    """Where a right is granted."""

    CLUSTER = "cluster"  # everywhere
    OWN = "own"  # in the controller's namespace
    JOBS = "jobs"  # in every namespace whose jobs may be asked and stopped


class Right(Struct, frozen=True, kw_only=True):
    """One verb on one resource; a subresource stands behind a slash."""

    scope: Scope
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"

    @property
    def attributes(self) -> dict[str, str]:
        """As a SubjectAccessReview asks for it, without its namespace."""
        resource, _, subresource = self.resource.partition("/")
        asked = {"verb": self.verb, "group": self.group, "resource": resource}
        return asked | ({"subresource": subresource} if subresource else {})


CHANGES = tuple(
    Right(scope=Scope.CLUSTER, verb=verb, group="gpu-upgrader.io", resource=resource)
    for resource in ("gpustacks", "upgradeplans")
    for verb in ("create", "patch")
)
"""What `apply`, `approve`, `pause` and the others write."""

DIAGNOSES = tuple(
    Right(scope=Scope.CLUSTER, verb=verb, group=group, resource=resource)
    for verb, group, resource in (
        ("get", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("list", "apiextensions.k8s.io", "customresourcedefinitions"),
        ("get", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    )
)
"""What `doctor` alone reads: the controller has no use for it, so deploy/ does not grant it."""


def looks(rights: Iterable[Right]) -> tuple[Right, ...]:
    """Those that a person needs to see a forecast: whoever foresees reads what the controller reads."""
    return tuple(one for one in rights if one.verb in {"get", "list"} and one.scope is not Scope.JOBS)


def granted(subject: str, check: str, asked: int, missing: Sequence[Right], *, fix: str, severity: Severity) -> Advice:
    """What came of asking for some rights; `severity` and `fix` are for the case that any is missing."""
    if not missing:
        return Advice(subject=subject, check=check, severity=Severity.OK, message=f"all {asked} rights are there")
    shown = ", ".join(str(one) for one in missing[:SHOWN])
    rest = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    message = f"{len(missing)} of {asked} rights are missing: {shown}{rest}."
    return Advice(subject=subject, check=check, severity=severity, message=message, fix=fix)
