"""Questions to the API server about who we are and what somebody may do; it answers them and keeps nothing."""

from typing import TypeVar

from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import ResourceKind

T = TypeVar("T")


class Verdict(Wire, frozen=True, kw_only=True):
    allowed: bool = False
    reason: str = ""


class AccessReview(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: Verdict = Verdict()


class Identity(Wire, frozen=True, kw_only=True):
    """Its creation time is the API server's clock."""

    metadata: ObjectMeta = ObjectMeta()


def _review(group: str, kind: str, type_: type[T]) -> ResourceKind[T]:
    return ResourceKind(
        group=f"{group}.k8s.io", version="v1", kind=kind, plural=f"{kind.lower()}s", namespaced=False, type=type_
    )


OWN_ACCESS = _review("authorization", "SelfSubjectAccessReview", AccessReview)
ACCESS_OF = _review("authorization", "SubjectAccessReview", AccessReview)
WHO_AM_I = _review("authentication", "SelfSubjectReview", Identity)
