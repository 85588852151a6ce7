"""Exit codes of the program. A test checks that docs/reference/cli.md lists the same codes and that they are unique."""

from collections.abc import Mapping

from upgrader.core import errors

DONE = 0
CHANGES = 2
USAGE = 64  # EX_USAGE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as in shells

EXITS: Mapping[int, str] = {
    DONE: "success; with `--detailed-exitcode`: no changes",
    errors.UpgraderError.exit_code: "an error",
    CHANGES: "only with `plan --detailed-exitcode`: there are changes",
    errors.StaleForecastError.exit_code: "the forecast is stale, or is for another cluster",
    errors.BlockedError.exit_code: "a workload blocks the operation, or another approval is required",
    errors.DeadlineError.exit_code: "a deadline passed: that of the plan, or that of `--timeout`",
    errors.RolloutFailedError.exit_code: "a canary or the rollout failed, or the rollout was aborted",
    errors.UnverifiedError.exit_code: "an image was checked and is not valid; the failed checks are listed",
    errors.RegistryError.exit_code: "a registry did not return a usable response: the state of its images is unknown",
    errors.UncheckedError.exit_code: "an image is not verified: no check failed, but not all checks were run",
    USAGE: "wrong usage",
    INTERRUPTED: "interrupted; the controller continues the plan",
}
