"""What the program ends with. docs/cli.md lists the same; a test keeps them equal and the numbers unique."""

from collections.abc import Mapping

from upgrader.core import errors

DONE = 0
CHANGES = 2
USAGE = 64  # EX_USAGE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells say it

EXITS: Mapping[int, str] = {
    DONE: "done; with `--detailed-exitcode`: nothing to do",
    errors.UpgraderError.exit_code: "an error",
    CHANGES: "only with `plan --detailed-exitcode`: there are changes",
    errors.StaleForecastError.exit_code: "the forecast is stale, or was made for another cluster",
    errors.BlockedError.exit_code: "a workload blocks what was asked for, or another approval is needed",
    errors.DeadlineError.exit_code: "a deadline passed: the plan's own, or how long was to be followed",
    errors.RolloutFailedError.exit_code: "a canary or the rollout failed, or it was aborted",
    errors.UnverifiedError.exit_code: "an image was looked at and is not what it should be; the checks are named",
    errors.RegistryError.exit_code: "a registry gave no answer that can be used: nothing is known of its images",
    errors.UncheckedError.exit_code: "an image is not verified: nothing wrong was found, and not all was looked at",
    USAGE: "wrong usage",
    INTERRUPTED: "interrupted; what was applied goes on in the controller",
}
