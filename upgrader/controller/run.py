"""The controller process: wait for the lease, lead until it is lost or a signal stops the process.

Every write except that of the lease is refused once the lease may have passed. Its loss ends the process with an error,
so that it restarts as a candidate with empty memory.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

import structlog

from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Node
from upgrader.controller import collector, probes, rim
from upgrader.controller.crash import crash_points
from upgrader.controller.loops import LoopPauses, Loops, Step
from upgrader.core.errors import ClusterError, ConfigurationError, LostLeadershipError
from upgrader.kube.client import KubeCluster
from upgrader.kube.informer import Informer, node_informer
from upgrader.kube.lease import CONTROLLER, Election, Timing
from upgrader.kube.transport import REQUEST_SECONDS
from upgrader.kube.watched import WatchedReads
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.reconcile.gpu_stack import stack_reconciler, stackless
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.waking import Waking
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader.stack import vendors
from upgrader.telemetry import logs
from upgrader.wiring import compose
from upgrader.wiring.settings import Settings

log = structlog.get_logger()

RETRY_SECONDS = 5.0


def lease_timing(lease_seconds: int) -> Timing:
    """The timing of a lease of this length: the last write of a leader ends before the next one leads."""
    act = lease_seconds - REQUEST_SECONDS
    return Timing(duration=lease_seconds, act=act, renew=min(5.0, act / 4))


def loop_steps(context: Context) -> Mapping[str, Step]:
    """The step of each kind that has loops."""
    sightings, without_stacks = Sightings(), stackless.StacklessPass()

    async def stack(name: str) -> float | None:
        return await stack_reconciler.reconcile_stack(context, name, sightings)

    async def plan(name: str) -> float | None:
        return await plan_reconciler.reconcile_plan(context, name)

    async def image(name: str) -> float | None:
        return await image_reconciler.reconcile_image(context, name)

    async def cluster(name: str) -> float | None:
        return await without_stacks.run_pass(context, name)

    return {"GpuStack": stack, "UpgradePlan": plan, "DriverImage": image, stackless.KIND: cluster}


async def run_controller(settings: Settings, *, kubeconfig: str | None = None, context: str | None = None) -> None:
    """Run a controller until SIGTERM or SIGINT.

    Raises:
        LostLeadershipError: another controller may lead now.
        ConfigurationError: a setting is invalid, the cluster is not supported, or the CRDs are missing.
    """
    logs.configure_logging(settings.log_format, settings.log_level)
    log_broken_vendors()
    collector.raise_thresholds()
    points = crash_points(os.environ)
    async with await KubeCluster.connect(kubeconfig, context) as connection:
        await _check_served(connection)
        election = Election(
            connection,
            name=CONTROLLER,
            namespace=settings.namespace,
            identity=settings.identity,
            timing=lease_timing(settings.lease_seconds),
        )
        cluster = connection.guarded(election.check)
        nodes = node_informer(cluster)
        watched = WatchedReads(cluster, nodes, settings.namespace)
        async with compose.controller_context(settings, cluster, nodes, watched, election, points) as reconcile_context:
            loops = Loops(loop_steps(reconcile_context), LoopPauses(between=_step_pause(settings)))

            async def wake_stacks() -> None:
                await wake_remaining(reconcile_context, loops)

            await _serve_until_stopped(settings, cluster, nodes, election, loops, [wake_stacks, watched.run])


def log_broken_vendors() -> None:
    """Log each installed vendor that cannot be used; the conditions of its stacks show the same reason."""
    for name, error in vendors.broken_vendors().items():
        log.error("a vendor cannot be used", vendor=name, because=str(error))


async def wake_remaining(context: Context, loops: Waking) -> None:
    """Wake every stack that has operands, and the loop without a stack: no event wakes these.

    A stack that was deleted while no controller led is known by its operands only.
    """
    loops.wake(stackless.KIND, stackless.NAME)
    while True:
        try:
            for name in sorted(await stack_reconciler.with_operands(context)):
                loops.wake("GpuStack", name)
        except ClusterError as error:
            log.warning("operands of deleted stacks cannot be listed, retrying", because=error.brief)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


async def _serve_until_stopped(
    settings: Settings,
    cluster: KubeCluster,
    nodes: Informer[Node],
    election: Election,
    loops: Loops,
    background: Sequence[Callable[[], Coroutine[None, None, None]]],
) -> None:
    stop = asyncio.Event()

    def alive() -> str:
        late = loops.overdue()
        if late is None or late[1] < settings.stuck_seconds:
            return ""
        return f"the step of {late[0].kind} {late[0].name} should have ended {late[1]:.0f} s ago"

    def ready() -> str:
        return "" if not loops.serving or nodes.snapshot() is not None else "the cache of the nodes is not in sync"

    def listen() -> None:
        _on_signals(stop.set)

    async def lead() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run(), name="nodes")
            group.create_task(loops.serve(), name="loops")
            for work in background:
                group.create_task(work())
            group.create_task(rim.run_watches(loops, cluster, listen), name="watches")

    listen()
    pages = probes.create_application(alive=alive, ready=ready)
    async with probes.serve_endpoints(pages, settings.listen_host, settings.listen_port):
        log.info("waiting to lead", lease=CONTROLLER, namespace=settings.namespace, identity=settings.identity)
        await _run_until(stop, lambda: election.run(lead))
    log.info("stopped by a signal; the state is in the cluster, and the next leader continues")


async def _run_until(stop: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Run the work until it ends or `stop` is set."""
    working, stopping = asyncio.ensure_future(work()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    except* LostLeadershipError as lost:
        raise _first_error(lost) from None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def _first_error(group: BaseException) -> BaseException:
    return _first_error(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group


def _on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _step_pause(settings: Settings) -> float:
    return min(LoopPauses().between, settings.active_seconds)


async def _check_served(cluster: KubeCluster) -> None:
    """Raise an error for kinds that are not served: kopf would wait for them silently."""
    for kind in KINDS:
        try:
            await cluster.list(kind.resource)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"the API server does not serve {kind.resource.kind}",
                details=error.details,
                resolution="Install the custom resources first: `upgrader crds --install`.",
            ) from error
