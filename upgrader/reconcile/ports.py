"""What reconcile needs of the world. Adapters fit structurally; mypy proves it in wiring.py.

Every write raises ConflictError when the object changed since it was read (or exists already), NotFoundError when it is
gone, ThrottledError for 429, UnreachableError when no answer came: then nothing is known and the step is made again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from upgrader.api.kubernetes import Node, ObjectMeta, Pod
from upgrader.api.resources import ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.acknowledgements import Answer
from upgrader.core.driver_build.driver_builds import Identity, Verdict
from upgrader.core.replies import Ran, Reply

T = TypeVar("T")


class Reads(Protocol):
    """Objects to be read: from the API server as it is now, or from what watches have shown."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """The object; None when it is not there."""
        ...

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """All objects (paginated), by label and field selector."""
        ...

    async def served(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Versions of each group and plural that the API server serves, the preferred first; kept for a minute.

        A kind that is not among them is not installed: then there is no object of it.
        """
        ...


class Cluster(Reads, Protocol):
    """The API server, object by object, as it is now."""

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """Create from a manifest; ConflictError when the name is taken."""
        ...

    async def rehearse(self, kind: ResourceKind[Any], body: Mapping[str, Any]) -> None:
        """See whether an object would be created now: all is checked, admission too, and nothing is kept.

        A name that is taken is none of it. Otherwise it raises what `create` would.
        """
        ...

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        """JSON merge patch that carries the resourceVersion of `meta`, so that it fits what was read."""
        ...

    async def edit(
        self, kind: ResourceKind[T], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> T:
        """JSON patch; a `test` operation that fails is a ConflictError."""
        ...

    async def apply(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """Server-side apply under our field manager, forced."""
        ...

    async def delete(self, kind: ResourceKind[T], meta: ObjectMeta) -> None:
        """Delete exactly this object (uid precondition); gone already is fine."""
        ...

    async def evict(self, pod: ObjectMeta) -> None:
        """Eviction API with uid and resourceVersion; ThrottledError when a PodDisruptionBudget forbids it now."""
        ...

    async def read_file(self, pod: Pod, container: str, path: str) -> bytes | None:
        """A file in a container, read by exec with an end marker; None when there is none or it came incomplete."""
        ...

    async def run(self, pod: Pod, container: str, argv: Sequence[str], env: Mapping[str, str]) -> Ran | None:
        """Run a command in a container that ends within seconds; None when it is not known to have ended."""
        ...

    async def call(self, pod: Pod, method: str, endpoint: str, body: object = None) -> Reply | None:
        """Speak HTTP to a pod at `:port/path`, with a JSON body; None when nobody answered.

        Raises:
            NotFoundError: the pod is not there.
            UnaskableError: the endpoint is none, see core.endpoints; nothing was sent.
        """
        ...

    async def version(self) -> str:
        """The API server's gitVersion, as v1.36.3; asked once and kept."""
        ...

    async def event(
        self, regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool = False
    ) -> None:
        """A Kubernetes Event for people; losing one is logged and changes nothing."""
        ...


class Nodes(Protocol):
    """All nodes, kept current by list, watch, relist."""

    def snapshot(self) -> Mapping[str, Node] | None:
        """Nodes by name; None while not in step with the API server (then nothing is decided)."""
        ...


class CheckpointMethod(Protocol):
    """One way of asking and answering (`file`, `exec`, `http`, `signal`, `api`), see checkpoint/.

    Pods are the gang's members as they are now.
    """

    async def ask(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        """Ask those members that were not asked under this request id yet.

        Raises:
            UnaskableError: some of them cannot be asked this way; the others have been, and carry the mark of it.
        """
        ...

    async def answers(self, request: CheckpointRequest, pods: Sequence[Pod]) -> tuple[Answer, ...]:
        """What members said so far, at most one answer each; unreadable or incomplete means: no answer."""
        ...

    async def withdraw(self, request: CheckpointRequest, pods: Sequence[Pod]) -> None:
        """Let members train on: takes away this request's marks, never those of a later one."""
        ...

    async def progress(self, request: CheckpointRequest, pods: Sequence[Pod]) -> Mapping[str, int]:
        """Latest step by pod uid, for members that say it."""
        ...


class Registry(Protocol):
    """Image registries."""

    async def digest(self, image: str) -> str | None:
        """`name@sha256:...` of the image; None when the registry says that it is absent; RegistryError otherwise."""
        ...


class Trust(Protocol):
    """What a consumer thinks of an image."""

    async def verify(self, image: str, identity: Identity) -> tuple[Verdict, ...]:
        """Verdicts on `name@sha256:...`; RegistryError or ProcessError when it cannot be looked at now: no verdict."""
        ...


class Clock(Protocol):
    """Time, replaceable in tests."""

    def now(self) -> datetime:
        """Aware, UTC."""
        ...


class Leadership(Protocol):
    """Whether we may still act: asked right before every write."""

    def check(self) -> None:
        """Raises LostLeadershipError when the lease may have passed to somebody else."""
        ...


class CrashPoints(Protocol):
    """Named places between intent, act and record; tests kill the process there."""

    def reached(self, *points: tuple[str, str, str]) -> None:
        """Machine, phase and stage; one place in the code may be two of them.

        Stages are after-intent, after-act and after-record (see core.model.phases.crash_points), and before-act: the
        decision is made, and a leader may be frozen there.
        """
        ...
