"""Errors for users: what is wrong, where, and what to do about it.

Expected outcomes (a blocker, nothing to do, a refusal by a job) are values, never exceptions.
"""

from collections.abc import Mapping


class UpgraderError(Exception):
    """An error with a brief sentence, optional details and its resolution.

    `exit_code` is that of the command line; see docs/reference/cli.md, a test keeps the two equal.
    """

    exit_code = 1

    refused = False
    """Whether this request was finally refused: it had no effect, and other requests may succeed."""

    refusal_text = ""
    """The literal text of the refusal, if there is one."""

    def __init__(self, brief: str, *, details: str = "", resolution: str = "") -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = details
        self.resolution = resolution

    def __str__(self) -> str:
        return "\n".join(part for part in (self.brief, self.details, self.resolution) if part)


class ConfigurationError(UpgraderError):
    """A manifest, flag or setting is not usable."""

    refused = True


class UnreadableError(ConfigurationError):
    """A value from others is unreadable: it is of another type, or beyond the bounds of core.untrusted."""


class UnaskableError(ConfigurationError):
    """The checkpoint method of a job does not reach its members: no such command, no open port.

    `missed`: uid of each such pod, and why. The request has reached all others.
    """

    def __init__(
        self, brief: str, *, missed: Mapping[str, str] | None = None, details: str = "", resolution: str = ""
    ) -> None:
        super().__init__(brief, details=details, resolution=resolution)
        self.missed = dict(missed or {})


class StaleForecastError(UpgraderError):
    """A saved forecast is for another cluster, or no longer holds inside its limits."""

    exit_code = 3


class BlockedError(UpgraderError):
    """A workload blocks the requested action."""

    exit_code = 4


class DeadlineError(UpgraderError):
    """A deadline passed before the awaited event."""

    exit_code = 5


class RolloutFailedError(UpgraderError):
    """A rollout was aborted, or a node of it failed."""

    exit_code = 6


class ClusterError(UpgraderError):
    """The API server refused or could not be reached."""

    refused = True


class NotFoundError(ClusterError):
    """The object does not exist."""

    refused = False


class ConflictError(ClusterError):
    """The object changed since it was read, or its name is taken; read again and decide again."""

    refused = False


class NameTakenError(ConflictError):
    """There is an object of that name already."""


class TwoBudgetsError(ClusterError):
    """A pod that more than one PodDisruptionBudget selects: the API server never evicts it, whatever they allow."""


class ThrottledError(ClusterError):
    """The API server throttles the request (429); `retry_after` in seconds, None if it states none."""

    refused = False

    def __init__(
        self, brief: str, *, retry_after: float | None = None, details: str = "", resolution: str = ""
    ) -> None:
        super().__init__(brief, details=details, resolution=resolution)
        self.retry_after = retry_after


class UnreachableError(ClusterError):
    """No answer from the API server: nothing is known, so nothing is decided."""

    refused = False


REFUSED = (ClusterError, ConfigurationError)
"""Errors with which the API server, or an admission webhook, may refuse one request and not the next."""


class LostLeadershipError(UpgraderError):
    """The lease may have passed to another controller: no further write is sent, and the successor continues."""


class UnverifiedError(UpgraderError):
    """An image was checked, and is not what it should be."""

    exit_code = 7


class RegistryError(UpgraderError):
    """A registry could not answer; this never means that an image is absent, or wrong."""

    exit_code = 8


class UncheckedError(UpgraderError):
    """No fault was found in an image, but required checks were not made: it is not verified."""

    exit_code = 9


class ProcessError(UpgraderError):
    """A program ended with an error, or did not end in its time."""


class DevClusterError(UpgraderError):
    """The embedded cluster cannot run here, or a part of it does not start."""


LONGEST = 300
"""The most characters of an error's description."""


def describe_error(error: Exception) -> str:
    """A short description of an error: its own text if it is written for users, else with its class."""
    brief = isinstance(error, UpgraderError)
    text = str(error).replace("\n", "; ") if brief else f"{type(error).__name__}: {error}".removesuffix(": ")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
