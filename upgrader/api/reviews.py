"""Reviews of identity and access, which the API server evaluates and does not store."""

from typing import TypeVar

from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import ResourceKind

T = TypeVar("T")


class AccessReviewStatus(Wire, frozen=True, kw_only=True):
    allowed: bool = False
    reason: str = ""


class AccessReview(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: AccessReviewStatus = AccessReviewStatus()


class SelfSubjectReview(Wire, frozen=True, kw_only=True):
    """The creation time is the current time of the API server."""

    metadata: ObjectMeta = ObjectMeta()


def _define_review(group: str, kind: str, type_: type[T]) -> ResourceKind[T]:
    return ResourceKind(
        group=f"{group}.k8s.io", version="v1", kind=kind, plural=f"{kind.lower()}s", namespaced=False, type=type_
    )


OWN_ACCESS = _define_review("authorization", "SelfSubjectAccessReview", AccessReview)
ACCESS_OF = _define_review("authorization", "SubjectAccessReview", AccessReview)
WHO_AM_I = _define_review("authentication", "SelfSubjectReview", SelfSubjectReview)
