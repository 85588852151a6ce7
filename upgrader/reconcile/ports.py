"""Ports of reconcile: the protocols of its adapters, which mypy checks in wiring.

Every write raises ConflictError when the object changed since it was read (or exists already), NotFoundError when it
does not exist, ThrottledError for 429, UnreachableError without an answer: then the result is unknown and the step is
repeated.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from upgrader.api.kubernetes import Node, ObjectMeta, Pod
from upgrader.api.resources import ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.driver_build.driver_builds import Identity, Verdict
from upgrader.core.replies import CommandResult, Reply

T = TypeVar("T")


class Reads(Protocol):
    """Reads of objects: from the API server, or from the cache of watches."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """The object; None if it does not exist."""
        ...

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """All objects (paginated), by label and field selector."""
        ...

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Served versions by group and plural, the preferred first; cached for a minute.

        A kind without an entry is not installed, so it has no objects.
        """
        ...


class Cluster(Reads, Protocol):
    """Reads and writes of single objects at the API server."""

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """Create from a manifest; ConflictError when the name is taken."""
        ...

    async def rehearse(self, kind: ResourceKind[Any], body: Mapping[str, Any]) -> None:
        """Create an object as a dry run: validation and admission run, and nothing is stored.

        A taken name is no error. Otherwise it raises the errors of `create`.
        """
        ...

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        """JSON merge patch with the resourceVersion of `meta`."""
        ...

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T:
        """JSON patch; a failed `test` operation raises ConflictError."""
        ...

    async def apply(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """Server-side apply with the operator's field manager, forced."""
        ...

    async def delete(self, kind: ResourceKind[T], meta: ObjectMeta) -> None:
        """Delete this object (uid precondition); an object that does not exist is no error."""
        ...

    async def evict(self, pod: ObjectMeta) -> None:
        """Eviction API with uid and resourceVersion; ThrottledError when a PodDisruptionBudget forbids it now."""
        ...

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None:
        """A file in a container, read by exec with an end marker; None if it does not exist or is incomplete."""
        ...

    async def read_log(self, pod: Pod, container: str) -> bytes:
        """The begin of the log of a container.

        Raises:
            NotFoundError: the pod does not exist.
        """
        ...

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> CommandResult | None:
        """Run a short command in a container; None if its end is unknown."""
        ...

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None:
        """Send an HTTP request with a JSON body to a pod at `:port/path`; None without an answer.

        Raises:
            NotFoundError: the pod does not exist.
            UnaskableError: the endpoint is invalid, see core.endpoints; nothing was sent.
        """
        ...

    async def version(self) -> str:
        """The API server's gitVersion, as v1.36.3; read once and cached."""
        ...

    async def event(
        self, regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool = False
    ) -> None:
        """Emit a Kubernetes Event for people; a failure is only logged."""
        ...


class Nodes(Protocol):
    """All nodes, kept current by list, watch, relist."""

    def snapshot(self) -> Mapping[str, Node] | None:
        """Nodes by name; None while not in sync with the API server (then nothing is decided)."""
        ...


class CheckpointMethod(Protocol):
    """One checkpoint method (`file`, `exec`, `http`, `signal`, `api`, `none`), see checkpoint/.

    `pods`: the gang's present members.
    """

    async def send_request(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        """Deliver the request to members that do not have this request id yet.

        Raises:
            UnaskableError: some members cannot be reached by this method; the others have the request.
        """
        ...

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Ack, ...]:
        """The answers of members, at most one each; an unreadable or incomplete answer is no answer."""
        ...

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        """Release members: removes this request's annotations, never those of a later request."""
        ...

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        """Latest step by pod uid, for members that report it."""
        ...


class Registry(Protocol):
    """Image registries."""

    async def digest(self, image: str) -> str | None:
        """`name@sha256:...` of the image; None if the registry reports it as absent; RegistryError otherwise."""
        ...

    async def labels(self, image: str) -> Mapping[str, str] | None:
        """Labels of `name@sha256:...`; None if it is absent; ValueError if it is an index of several images."""
        ...


class ImageVerifier(Protocol):
    """Verification of images."""

    async def verify(self, image: str, identity: Identity) -> tuple[Verdict, ...]:
        """Verdicts on `name@sha256:...`; RegistryError or ProcessError if it cannot be verified now."""
        ...


class Clock(Protocol):
    """Time, replaceable in tests."""

    def now(self) -> datetime:
        """The current time, timezone-aware, in UTC."""
        ...


class Leadership(Protocol):
    """Leader election, checked right before every write."""

    def check(self) -> None:
        """Raises LostLeadershipError when another controller may hold the lease."""
        ...


class CrashPoints(Protocol):
    """Named places between intent, act and record; tests kill the process there."""

    def reached(self, *points: tuple[str, str, str]) -> None:
        """Machine, phase and stage; one place in the code may be two points.

        Stages are after-intent, after-act and after-record (see core.model.phases.crash_points), and before-act, where
        a leader may be frozen between decision and act.
        """
        ...
