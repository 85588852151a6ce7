"""The command prefix that puts the first process of a box into its cgroups. Pure."""

from collections.abc import Iterable
from pathlib import Path

_JOIN_AND_EXEC = (
    'for procs; do test "$procs" = -- && break; echo $$ > "$procs" || exit 1; shift; done; shift; exec "$@"'
)
"""sh -c: its arguments are cgroup.procs files to join, then --, then the program to execute."""


def join_words(groups: Iterable[Path]) -> list[str]:
    """Words to put before a program, so that it starts in these cgroups."""
    return ["sh", "-c", _JOIN_AND_EXEC, "sh", *(str(group / "cgroup.procs") for group in groups), "--"]
