"""A simulated cluster whose responses are late."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

T = TypeVar("T")


class FarCluster(FakeCluster):
    """A cluster behind a network: other steps run before a response, and more of them before a write."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        await asyncio.sleep(0)
        return await super().get(kind, name, namespace)

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        await asyncio.sleep(0)
        return await super().list(kind, namespace, labels=labels, fields=fields)

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().merge(kind, meta, patch, subresource)
