"""The kinds that an API server serves, by aggregated discovery: one response for all (Kubernetes 1.30 and later)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from upgrader.api.kubernetes import ObjectMeta, Wire

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""Accept header of GET /apis."""


class DiscoveredResource(Wire, frozen=True, kw_only=True):
    resource: str


class DiscoveredVersion(Wire, frozen=True, kw_only=True):
    version: str
    resources: tuple[DiscoveredResource, ...] = ()


class DiscoveredGroup(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    versions: tuple[DiscoveredVersion, ...] = ()


class ApiDiscovery(Wire, frozen=True, kw_only=True):
    """Served kinds by group; `kind` rejects the response of an API server without aggregated discovery."""

    kind: Literal["APIGroupDiscoveryList"]
    items: tuple[DiscoveredGroup, ...] = ()


def served_versions(discovery: ApiDiscovery) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Versions by group and plural, in the order of the API server: the preferred first."""
    served: dict[tuple[str, str], tuple[str, ...]] = {}
    for group in discovery.items:
        for version in group.versions:
            for resource in version.resources:
                key = (group.metadata.name, resource.resource)
                served[key] = (*served.get(key, ()), version.version)
    return MappingProxyType(served)
