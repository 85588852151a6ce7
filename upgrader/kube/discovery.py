"""Which kinds an API server serves: aggregated discovery, one answer for all of them (Kubernetes 1.30 and later)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from upgrader.api.kubernetes import ObjectMeta, Wire

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What is accepted as an answer to GET /apis."""


class DiscoveredResource(Wire, frozen=True, kw_only=True):
    resource: str


class DiscoveredVersion(Wire, frozen=True, kw_only=True):
    version: str
    resources: tuple[DiscoveredResource, ...] = ()


class DiscoveredGroup(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    versions: tuple[DiscoveredVersion, ...] = ()


class Discovery(Wire, frozen=True, kw_only=True):
    """What is served, by group; `kind` tells it from the answer of an API server that does not know the question."""

    kind: Literal["APIGroupDiscoveryList"]
    items: tuple[DiscoveredGroup, ...] = ()


def served_versions(found: Discovery) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Versions by group and plural, in the order of the API server: the preferred first."""
    served: dict[tuple[str, str], tuple[str, ...]] = {}
    for group in found.items:
        for version in group.versions:
            for one in version.resources:
                key = (group.metadata.name, one.resource)
                served[key] = (*served.get(key, ()), version.version)
    return MappingProxyType(served)
