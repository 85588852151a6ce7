"""Composition of adapters and ports; mypy checks here that the adapters implement the ports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from upgrader.checkpoint.methods import checkpoint_methods
from upgrader.core.errors import ConfigurationError
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.facts.workloads import SHARED_SECONDS, Workloads
from upgrader.reconcile.ports import Cluster, CrashPoints, ImageVerifier, Leadership, Nodes, Reads, Registry
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.settings import BuildSettings, StackSettings
from upgrader.wiring.settings import Settings

if TYPE_CHECKING:
    from upgrader.images.registry.client import RegistryClient

PINNED = "@sha256:"


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """See ports.Clock."""
        return datetime.now(UTC)


class UserLeadership:
    """Leadership for the command line: a user may always write; resourceVersions detect conflicts."""

    def check(self) -> None:
        """Never raises."""


class NoCrashPoints:
    """Crash points without effect."""

    def reached(self, *points: tuple[str, str, str]) -> None:
        """Does nothing."""


class NoSnapshot:
    """Nodes that were not listed."""

    def snapshot(self) -> None:
        """See ports.Nodes; None means that there is no snapshot."""


class ImageRegistry:
    """Reads of images in their registries."""

    def __init__(self, client: "RegistryClient") -> None:
        self._client = client

    async def digest(self, image: str) -> str | None:
        """See ports.Registry."""
        return await self._client.digest(image)

    async def labels(self, image: str) -> dict[str, str] | None:
        """See ports.Registry."""
        from upgrader.images.labels import registry_labels  # noqa: PLC0415 - as in _open_registry

        return await registry_labels(self._client, image)


@asynccontextmanager
async def controller_context(
    settings: Settings, cluster: Cluster, nodes: Nodes, watched: Reads, leadership: Leadership, crash: CrashPoints
) -> AsyncIterator[Context]:
    """The context of the reconcilers of a controller.

    Raises:
        ConfigurationError: no node image is set or it is not in its registry; the key is invalid, or cosign is missing.
        RegistryError: the registry did not respond.
    """
    async with _open_registry(settings) as client:
        registry = ImageRegistry(client)
        context = create_context(
            settings, cluster, nodes, leadership, crash, registry, await _pin_node_image(settings, registry)
        )
        workloads = Workloads(seconds=SHARED_SECONDS, watched=watched)
        yield replace(context, trust=_create_verifier(settings, client), watched=watched, workloads=workloads)


@asynccontextmanager
async def reader_context(settings: Settings, kubeconfig: str | None, name: str | None) -> AsyncIterator[Context]:
    """The context of the command line, without a snapshot of the nodes."""
    async with await KubeCluster.connect(kubeconfig, name) as cluster, _open_registry(settings) as client:
        registry = ImageRegistry(client)
        yield create_context(
            settings, cluster, NoSnapshot(), UserLeadership(), NoCrashPoints(), registry, settings.node_image
        )


def create_context(
    settings: Settings,
    cluster: Cluster,
    nodes: Nodes,
    leadership: Leadership,
    crash: CrashPoints,
    registry: Registry,
    node_image: str,
) -> Context:
    """The context for reconcilers from ports and settings."""
    return Context(
        cluster=cluster,
        nodes=nodes,
        registry=registry,
        clock=SystemClock(),
        leadership=leadership,
        crash=crash,
        methods=checkpoint_methods(cluster),
        stack=StackSettings(node_image=node_image, namespace=settings.namespace, registry=settings.operand_registry),
        builds=_build_settings(settings),
        active_seconds=settings.active_seconds,
        idle_seconds=settings.idle_seconds,
        notice_seconds=settings.notice_seconds,
    )


def _build_settings(settings: Settings) -> BuildSettings:
    return BuildSettings(
        repository=settings.image_repository,
        builder_image=settings.builder_image,
        namespace=settings.namespace,
        signing=settings.signing,
        module_signing=settings.module_signing,
        push_auth=settings.push_auth,
        insecure_registries=settings.insecure_registries,
        node_selector=settings.build_nodes,
        cpu=settings.build_cpu,
        memory=settings.build_memory,
        max_concurrent=settings.build_at_once,
    )


async def _pin_node_image(settings: Settings, registry: Registry) -> str:
    """The node image by digest, so that all nodes run the same image."""
    if not settings.node_image:
        raise ConfigurationError(
            "no image is set for the pods on nodes",
            resolution="Set UPGRADER_NODE_IMAGE to the image of this release (see docs/reference/cli.md).",
        )
    if PINNED in settings.node_image:
        return settings.node_image  # without the registry, which may be down: the controller must restart gangs
    digest = await registry.digest(settings.node_image)
    if digest is None:
        raise ConfigurationError(
            f"{settings.node_image} is not in its registry",
            resolution="Push it, or correct UPGRADER_NODE_IMAGE.",
        )
    return digest


def _create_verifier(settings: Settings, registry: "RegistryClient") -> ImageVerifier | None:
    """The verifier of driver images; None if no key is set, which the status of images then states."""
    if not settings.image_key:
        return None
    from upgrader.images import trust  # noqa: PLC0415 - only a controller with a key needs it

    return trust.Verifier(
        key=trust.public_key(Path(settings.image_key)), cosign=trust.find_cosign(settings.cosign), registry=registry
    )


@asynccontextmanager
async def _open_registry(settings: Settings) -> AsyncIterator["RegistryClient"]:
    from upgrader.images.registry.client import RegistryClient  # noqa: PLC0415 - most commands ask no registry
    from upgrader.images.registry.login import auth_file, read_logins  # noqa: PLC0415

    async with RegistryClient(insecure=settings.insecure_registries, logins=read_logins(auth_file())) as client:
        yield client
