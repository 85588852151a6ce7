"""Our kinds on an API server: apply the definitions and wait until they are served."""

import asyncio

from upgrader.api.crd import definition
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Condition, ObjectMeta, Wire
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ConfigurationError, DeadlineError
from upgrader.kube.client import KubeCluster

SERVED_SECONDS = 30.0
_POLL_SECONDS = 0.1


class DefinitionStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None


class Definition(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: DefinitionStatus = DefinitionStatus()


CRDS: ResourceKind[Definition] = ResourceKind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
    type=Definition,
)


async def install_kinds(cluster: KubeCluster) -> None:
    """Apply every CustomResourceDefinition of this release and wait until the API server serves it.

    Raises:
        ConfigurationError: the API server refuses a definition.
        DeadlineError: a definition was accepted but is not served in time.
    """
    for kind in KINDS:
        await cluster.apply(CRDS, definition(kind))
    names = [f"{kind.resource.plural}.{kind.resource.group}" for kind in KINDS]
    try:
        async with asyncio.timeout(SERVED_SECONDS):
            await asyncio.gather(*(_established(cluster, name) for name in names))
            await asyncio.gather(*(_served(cluster, kind.resource) for kind in KINDS))
    except TimeoutError as error:
        raise DeadlineError(
            f"our kinds were not served after {SERVED_SECONDS:.0f} s",
            resolution="See the conditions of `kubectl get crd -o yaml` for what the API server minds.",
        ) from error


async def _established(cluster: KubeCluster, name: str) -> None:
    while True:
        found = await cluster.get(CRDS, name)
        conditions = found.status.conditions if found is not None else None
        held = {condition.type: condition.status for condition in conditions or ()}
        if held.get("Established") == "True":
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _served(cluster: KubeCluster, kind: ResourceKind[object]) -> None:
    """Established comes a moment before the endpoint answers."""
    while True:
        try:
            await cluster.list(kind)
        except ConfigurationError:
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
