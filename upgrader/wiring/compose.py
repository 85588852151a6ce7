"""Adapters behind ports. That they fit is proven by mypy right here: nothing else passes one to the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from upgrader.checkpoint.methods import methods
from upgrader.core.errors import ConfigurationError
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.facts.workloads import SHARED_SECONDS, Workloads
from upgrader.reconcile.ports import Cluster, CrashPoints, Leadership, Nodes, Reads, Registry, Trust
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.settings import BuildSettings, StackSettings
from upgrader.wiring.settings import Settings

if TYPE_CHECKING:
    from upgrader.images.registry import RegistryClient

PINNED = "@sha256:"


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        """See ports.Clock."""
        return datetime.now(UTC)


class PeopleMayAct:
    """Leadership of the command line: a person writes whenever they like, the API server's versions keep order."""

    def check(self) -> None:
        """Never refuses."""


class NoCrashPoints:
    """Where nothing is killed on purpose."""

    def reached(self, *points: tuple[str, str, str]) -> None:
        """Nothing happens."""


class NoLook:
    """Nobody has listed the nodes."""

    def snapshot(self) -> None:
        """See ports.Nodes: nothing is decided."""


@asynccontextmanager
async def controller(
    settings: Settings, cluster: Cluster, nodes: Nodes, watched: Reads, leadership: Leadership, crash: CrashPoints
) -> AsyncIterator[Context]:
    """Everything that the reconcilers of a controller are given.

    Raises:
        ConfigurationError: no node image is set, or its registry does not have it; a key is set that is none, or there
            is nothing to verify with.
        RegistryError: the registry could not say.
    """
    async with _registry(settings) as registry:
        made = context(settings, cluster, nodes, leadership, crash, registry, await _pinned(settings, registry))
        workloads = Workloads(seconds=SHARED_SECONDS, watched=watched)
        yield replace(made, trust=_trust(settings, registry), watched=watched, workloads=workloads)


@asynccontextmanager
async def reader(settings: Settings, kubeconfig: str | None, name: str | None) -> AsyncIterator[Context]:
    """What the command line works with; whoever needs nodes lists them by `look`."""
    async with await KubeCluster.connect(kubeconfig, name) as cluster, _registry(settings) as registry:
        yield context(settings, cluster, NoLook(), PeopleMayAct(), NoCrashPoints(), registry, settings.node_image)


def context(
    settings: Settings,
    cluster: Cluster,
    nodes: Nodes,
    leadership: Leadership,
    crash: CrashPoints,
    registry: Registry,
    node_image: str,
) -> Context:
    """The ports and settings as reconcile takes them."""
    return Context(
        cluster=cluster,
        nodes=nodes,
        registry=registry,
        clock=SystemClock(),
        leadership=leadership,
        crash=crash,
        methods=methods(cluster),
        stack=StackSettings(node_image=node_image, namespace=settings.namespace, registry=settings.operand_registry),
        builds=_builds(settings),
        active_seconds=settings.active_seconds,
        idle_seconds=settings.idle_seconds,
        notice_seconds=settings.notice_seconds,
    )


def _builds(settings: Settings) -> BuildSettings:
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
        at_once=settings.build_at_once,
    )


async def _pinned(settings: Settings, registry: Registry) -> str:
    """The node image by digest, so that prepare, upgrade and validation run the same bytes on every node."""
    if not settings.node_image:
        raise ConfigurationError(
            "no image is set for the pods that upgrade nodes",
            resolution="Set UPGRADER_NODE_IMAGE to the image of this release (see docs/reference/cli.md).",
        )
    if PINNED in settings.node_image:
        return settings.node_image  # a registry that is away must not keep a controller from restarting gangs
    digest = await registry.digest(settings.node_image)
    if digest is None:
        raise ConfigurationError(
            f"{settings.node_image} is not in its registry",
            resolution="Push it, or correct UPGRADER_NODE_IMAGE.",
        )
    return digest


def _trust(settings: Settings, registry: "RegistryClient") -> Trust | None:
    """Who verifies driver images; None where no key is set, and then every image says so."""
    if not settings.image_key:
        return None
    from upgrader.images import trust  # noqa: PLC0415 - only a controller with a key needs it

    return trust.Verifier(
        key=trust.public_key(Path(settings.image_key)), cosign=trust.find(settings.cosign), registry=registry
    )


@asynccontextmanager
async def _registry(settings: Settings) -> AsyncIterator["RegistryClient"]:
    from upgrader.images.registry import RegistryClient  # noqa: PLC0415 - most commands ask no registry
    from upgrader.images.registry_login import auth_file, logins  # noqa: PLC0415

    async with RegistryClient(insecure=settings.insecure_registries, logins=logins(auth_file())) as client:
        yield client
