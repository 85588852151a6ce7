"""Which kubelet may run beside which API server.

Nothing else checks this before a kubelet is swapped: the API server serves kubelets of any age until something breaks.
"""

import re

from msgspec import Struct

OLDEST = 3
"""A kubelet may be this many minor versions older than the API server (Kubernetes' version skew policy, since 1.28)."""

_VERSION = re.compile(r"^v?(\d+)\.(\d+)(?:\.|$)")


class Skew(Struct, frozen=True, kw_only=True):
    """Whether two versions go together; `message` says why not, with what to do."""

    allowed: bool
    message: str = ""


def minor_of(version: str) -> tuple[int, int] | None:
    """Major and minor of `1.35.4`, `v1.36.0` or `v1.36.0+k3s1`; None where the text is no such version."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


def kubelet_skew(kubelet: str, api_server: str) -> Skew:
    """A kubelet is never newer than its API server and at most three minor versions older; unknown is not allowed."""
    ours, theirs = minor_of(kubelet), minor_of(api_server)
    if ours is None or theirs is None:
        unknown = f"the kubelet's version {kubelet!r}" if ours is None else f"the API server's version {api_server!r}"
        return Skew(allowed=False, message=f"{unknown} is not known as a version, so the skew cannot be judged.")
    if ours > theirs:
        return Skew(
            allowed=False,
            message=f"Kubelet {kubelet} would be newer than the API server ({api_server}); upgrade that first.",
        )
    if ours[0] != theirs[0] or theirs[1] - ours[1] > OLDEST:
        return Skew(
            allowed=False,
            message=f"Kubelet {kubelet} would be more than {OLDEST} minor versions older than the API server "
            f"({api_server}); choose a newer one in the stack's spec.kubelet.",
        )
    return Skew(allowed=True)
