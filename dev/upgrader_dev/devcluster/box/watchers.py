"""Inotify instances: the kernel gives each user 128; a box takes seven of them and a control plane four.

Without instances containerd starts but serves no kubelet ("unknown service runtime.v1.RuntimeService"), so a box would
look broken.
"""

from pathlib import Path

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 1024
_OF_A_BOX = 7


def allow_watchers(limit: Path = LIMIT) -> str:
    """Raise the limit for many boxes; returns what was changed, or what failed, as a sentence.

    Empty if the limit was high enough. It is never lowered again: other processes may need it by then.
    """
    present = int(limit.read_text(encoding="utf-8"))
    if present >= ENOUGH:
        return ""
    try:
        limit.write_text(f"{ENOUGH}\n", encoding="utf-8")
    except OSError as error:
        return (
            f"only {present} inotify instances for all boxes, a box takes {_OF_A_BOX}: {limit} cannot be set to "
            f"{ENOUGH} ({error.strerror})"
        )
    return f"inotify instances of a user were {present}, now {ENOUGH}: a box takes {_OF_A_BOX}"
