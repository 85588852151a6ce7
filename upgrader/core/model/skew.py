"""Version skew between kubelet and API server.

No other check precedes the change of a kubelet: the API server serves kubelets of any version until a call fails.
"""

from msgspec import Struct
from packaging.version import InvalidVersion, Version

OLDEST = 3
"""A kubelet may be this many minor versions older than the API server (Kubernetes' version skew policy, since 1.28)."""


class Skew(Struct, frozen=True, kw_only=True):
    """Whether two versions are compatible; `message` states why not, with what to do."""

    allowed: bool
    message: str = ""


def minor_of(version: str) -> tuple[int, int] | None:
    """Major and minor of `1.35.4`, `v1.36.0` or `v1.36.0+k3s1`; None if the text is no such version."""
    try:
        release = Version(version.partition("-")[0]).release  # distributions append `-gke.1` and the like
    except InvalidVersion:
        return None
    return (release[0], release[1]) if len(release) > 1 else None


def kubelet_skew(kubelet: str, api_server: str) -> Skew:
    """A kubelet is not newer than its API server and at most three minor versions older; unknown is not allowed."""
    own, served = minor_of(kubelet), minor_of(api_server)
    if own is None or served is None:
        unknown = f"the kubelet's version {kubelet!r}" if own is None else f"the API server's version {api_server!r}"
        return Skew(allowed=False, message=f"{unknown} is not a version, so the skew cannot be checked.")
    if own > served:
        return Skew(
            allowed=False,
            message=f"Kubelet {kubelet} would be newer than the API server ({api_server}); upgrade the API server "
            "first.",
        )
    if own[0] != served[0] or served[1] - own[1] > OLDEST:
        return Skew(
            allowed=False,
            message=f"Kubelet {kubelet} would be more than {OLDEST} minor versions older than the API server "
            f"({api_server}); choose a newer one in the stack's spec.kubelet.",
        )
    return Skew(allowed=True)
