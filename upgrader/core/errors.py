"""Errors that a person reads: what is wrong, where, and what to do about it.

Expected outcomes (a blocker, nothing to do, a refusal by a job) are values, never exceptions.
"""

from collections.abc import Mapping


class UpgraderError(Exception):
    """An error with a brief sentence, optional details and the way out of it.

    `exit_code` is what the command line ends with; see docs/cli.md, a test keeps the two equal.
    """

    exit_code = 1

    refused = False
    """Whether this very request was answered with no, for good: nothing of it was done, and others may go through."""

    said = ""
    """The very words of whoever answered with no, where somebody did."""

    def __init__(self, brief: str, *, details: str = "", resolution: str = "") -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = details
        self.resolution = resolution

    def __str__(self) -> str:
        return "\n".join(part for part in (self.brief, self.details, self.resolution) if part)


class ConfigurationError(UpgraderError):
    """A manifest, flag or setting cannot be used as it is."""

    refused = True


class UnreadableError(ConfigurationError):
    """What others wrote cannot be read: it is no such value, or is beyond the bounds of core.untrusted."""


class UnaskableError(ConfigurationError):
    """Members cannot be asked the way that their job declares: no such command, nobody listens.

    `missed`: uid of each such pod, and why. All others have been asked.
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
    """A workload blocks what was asked for."""

    exit_code = 4


class DeadlineError(UpgraderError):
    """A deadline passed before the thing waited for happened."""

    exit_code = 5


class RolloutFailedError(UpgraderError):
    """A rollout was aborted, or a node of it failed."""

    exit_code = 6


class ClusterError(UpgraderError):
    """The API server refused or could not be reached."""

    refused = True


class NotFoundError(ClusterError):
    """The object is not there."""

    refused = False


class ConflictError(ClusterError):
    """The object changed since it was read, or its name is taken; read again and decide again."""

    refused = False


class NameTakenError(ConflictError):
    """There is an object of that name already."""


class TwoBudgetsError(ClusterError):
    """A pod that more than one PodDisruptionBudget selects: the API server evicts none such, whatever they allow."""


class ThrottledError(ClusterError):
    """The API server asks to wait (429); `retry_after` in seconds, None where it did not say."""

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
"""What the API server, or an admission webhook of it, may say to one request and not to the next."""


class LostLeadershipError(UpgraderError):
    """Our lease may have passed to another controller: nothing more is written, the successor goes on."""


class UnverifiedError(UpgraderError):
    """An image was looked at, and is not what it should be."""

    exit_code = 7


class RegistryError(UpgraderError):
    """A registry could not answer; this never means that an image is absent, or wrong."""

    exit_code = 8


class UncheckedError(UpgraderError):
    """Nothing wrong was found in an image, but checks that count were not made: it is not verified."""

    exit_code = 9


class ProcessError(UpgraderError):
    """A program ended with an error, or did not end in its time."""


class DevClusterError(UpgraderError):
    """The embedded cluster cannot run here, or a part of it does not come up."""


LONGEST = 300
"""Characters of one error that are told."""


def describe(error: Exception) -> str:
    """An error in a few words: its own where it is made for people, else with its class."""
    brief = isinstance(error, UpgraderError)
    text = str(error).replace("\n", "; ") if brief else f"{type(error).__name__}: {error}".removesuffix(": ")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
