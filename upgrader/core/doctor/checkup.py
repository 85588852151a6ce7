"""Checks that a cluster is fit for rollouts: each pure, from facts to advice."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.skew import minor_of

_SHOWN = 3
SKEW_SECONDS = 5
"""A larger skew is reported; the API server's clock can be read to a second."""


class LeaseFacts(Struct, frozen=True, kw_only=True):
    """The controller's Lease; `seconds` is its duration after a renewal."""

    holder: str
    renewed_at: datetime
    seconds: int


def check_version(git_version: str, unsteered: Sequence[str]) -> Advice:
    """The API server's version, and what it lacks; `unsteered`: owners whose templates it does not allow to change."""
    if minor_of(git_version) is None:
        return _make_advice(
            "API server", "Version", Severity.WARNING, f"its version {git_version!r} cannot be read", ""
        )
    if unsteered:
        return _make_advice(
            "API server",
            "Version",
            Severity.WARNING,
            f"{git_version}: a restarted gang of {', '.join(unsteered)} cannot be steered to upgraded nodes.",
            "Approve plans with --allow-unguaranteed-placement, or upgrade the control plane first.",
        )
    return _make_advice("API server", "Version", Severity.OK, f"{git_version}, has all features", "")


def check_policy(name: str, *, installed: bool) -> Advice:
    """An optional admission policy of the operator; both states are well."""
    message = "it is installed" if installed else "it is not installed; it is optional"
    return _make_advice(f"policy {name}", "AdmissionPolicy", Severity.OK, message, "")


def report_unverified(names: Sequence[str]) -> Advice:
    """DriverImages in service whose signature is not verified."""
    shown = ", ".join([*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])
    return _make_advice(
        "driver images",
        "Verified",
        Severity.WARNING,
        f"pinned and not verified, as no key is set; only stacks that allow unverified images use them: {shown}",
        "Set UPGRADER_IMAGE_KEY for the controller: each of them is verified then. "
        "Or set spec.driver.unverified: Allow in the stack.",
    )


def report_invalid_stack(name: str, error: ConfigurationError) -> Advice:
    """A stack whose spec gives no target: nothing is installed or upgraded on its nodes."""
    return _make_advice(
        f"stack {name}",
        "Valid",
        Severity.PROBLEM,
        f"{error.brief}{f' ({error.details})' if error.details else ''}",
        error.resolution or "Correct the spec of the stack.",
    )


def check_clock(server: datetime, before: datetime, after: datetime) -> Advice:
    """The API server's clock (whole seconds), and the local clock before and after the read."""
    early, late = before - server - timedelta(seconds=1), after - server
    off = late if late < timedelta(0) else max(early, timedelta(0))
    seconds = round(off.total_seconds())
    if abs(seconds) <= SKEW_SECONDS:
        return _make_advice("clocks", "ClockSkew", Severity.OK, "this machine and the API server agree", "")
    side = "ahead of" if seconds > 0 else "behind"
    return _make_advice(
        "clocks",
        "ClockSkew",
        Severity.WARNING,
        f"this machine is {abs(seconds)} s {side} the API server; deadlines and windows entered here differ by as "
        "much.",
        "Use the same time servers for both.",
    )


def check_controller(lease: LeaseFacts | None, now: datetime, namespace: str) -> Advice:
    """Whether a controller holds the Lease; `now` by the API server's clock."""
    fix = "Apply deploy/controller.yaml, and see the log of its pods; no upgrade proceeds without it."
    if lease is None:
        message = f"no controller has ever held the Lease in namespace {namespace}"
        return _make_advice("controller", "ControllerRuns", Severity.PROBLEM, message, fix)
    silent = (now - lease.renewed_at).total_seconds()
    if not lease.holder or silent > lease.seconds:
        whose = (
            f"the last leader was {lease.holder}, {silent:.0f} s ago" if lease.holder else "the last leader has ended"
        )
        return _make_advice("controller", "ControllerRuns", Severity.PROBLEM, f"no controller runs: {whose}", fix)
    return _make_advice("controller", "ControllerRuns", Severity.OK, f"{lease.holder} leads", "")


def check_definition(name: str, wanted: Mapping[str, Any], there: Mapping[str, Any] | None) -> Advice:
    """Whether a CustomResourceDefinition (its spec) is that of this release."""
    fix = "Run `upgrader crds --install`."
    if there is None:
        return _make_advice(name, "DefinitionsCurrent", Severity.PROBLEM, "it is not installed", fix)
    differing = first_difference(wanted, there)
    if differing is None:
        return _make_advice(name, "DefinitionsCurrent", Severity.OK, "it is of this release", "")
    return _make_advice(
        name, "DefinitionsCurrent", Severity.PROBLEM, f"it is of another release: {differing} differs", fix
    )


def first_difference(wanted: object, there: object, path: str = "spec") -> str | None:
    """Path of the first field that is not as wanted; defaults that an API server adds do not count."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        if path.endswith(".properties"):
            more = sorted(set(there) - set(wanted))
            if more:
                return f"{path}.{more[0]}"
        parts = ((f"{path}.{key}", value, there.get(key)) for key, value in wanted.items())
    elif isinstance(wanted, Sequence) and isinstance(there, Sequence) and not isinstance(wanted, str):
        if len(wanted) != len(there):
            return path
        parts = ((f"{path}[{at}]", *pair) for at, pair in enumerate(zip(wanted, there, strict=True)))
    else:
        return None if wanted == there else path
    return next((inner for at, left, right in parts if (inner := first_difference(left, right, at)) is not None), None)


def _make_advice(subject: str, check: str, severity: Severity, message: str, fix: str) -> Advice:
    return Advice(subject=subject, check=check, severity=severity, message=message, fix=fix)
