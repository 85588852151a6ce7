"""Installation of the custom resources: apply the definitions and wait until they are served."""

import asyncio

from upgrader.api.crd import crd_manifest
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Condition, ObjectMeta, Wire
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ConfigurationError, DeadlineError
from upgrader.kube.client import KubeCluster

SERVED_SECONDS = 30.0
_POLL_SECONDS = 0.1


class DefinitionStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None


class CustomResourceDefinition(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: DefinitionStatus = DefinitionStatus()


CRDS: ResourceKind[CustomResourceDefinition] = ResourceKind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
    type=CustomResourceDefinition,
)


async def install_kinds(cluster: KubeCluster) -> None:
    """Apply every CustomResourceDefinition of this release and wait until the API server serves it.

    Raises:
        ConfigurationError: the API server rejects a definition.
        DeadlineError: a definition is not served in time.
    """
    for kind in KINDS:
        await cluster.apply(CRDS, crd_manifest(kind))
    names = [f"{kind.resource.plural}.{kind.resource.group}" for kind in KINDS]
    try:
        async with asyncio.timeout(SERVED_SECONDS):
            await asyncio.gather(*(_wait_until_established(cluster, name) for name in names))
            await asyncio.gather(*(_wait_until_served(cluster, kind.resource) for kind in KINDS))
    except TimeoutError as error:
        raise DeadlineError(
            f"the custom resources are not served after {SERVED_SECONDS:.0f} s",
            resolution="See the conditions in `kubectl get crd -o yaml` for the reason.",
        ) from error


async def _wait_until_established(cluster: KubeCluster, name: str) -> None:
    while True:
        crd = await cluster.get(CRDS, name)
        conditions = crd.status.conditions if crd is not None else None
        statuses = {condition.type: condition.status for condition in conditions or ()}
        if statuses.get("Established") == "True":
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _wait_until_served(cluster: KubeCluster, kind: ResourceKind[object]) -> None:
    """Wait until a list works: the condition Established is set shortly before the endpoint responds."""
    while True:
        try:
            await cluster.list(kind)
        except ConfigurationError:
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
