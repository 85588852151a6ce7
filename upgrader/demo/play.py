"""The play: a pool with three training jobs gets another driver, device plugin and kubelet, by a person's commands."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.core import timing
from upgrader.demo import evidence, stage, waiting
from upgrader.demo.controller import Controller
from upgrader.demo.journals import read_job
from upgrader.demo.manifests import POOL
from upgrader.demo.report import JobReport, NodeReport, Report
from upgrader.demo.stage import Progress, Stage
from upgrader.devcluster import Cluster, ClusterSpec, down, up
from upgrader.process import Finished, run

CLUSTER = "demo"
FORMER, NEXT = ("1.0.0", "1.34.4", "1"), ("2.0.0", "1.35.4", "2")
"""Driver, kubelet and device plugin before and after."""


class Cast(Struct, frozen=True, kw_only=True):
    """A job of the play."""

    members: int = 1
    arguments: tuple[str, ...] = ()
    annotations: dict[str, str] = {}


JOBS = {
    "gang": Cast(members=2),
    "short": Cast(arguments=("--steps", "900"), annotations={names.ANNOTATION_EXPECTED_RUNTIME: "2m"}),
    "unwilling": Cast(arguments=("--behaviour", "refuse-once", "--retry-after", "10")),
}
"""One of two members, one that ends by itself and is waited for, one that refuses once."""

GPUS = 8
STRATEGY = ("--max-unavailable", "100%", "--no-canary", "--harvest-for", "5m")
STEPS_BEFORE = 30
INSTALL_SECONDS, TRAIN_SECONDS, COMMAND_SECONDS = 180.0, 60.0, 900.0


async def play(progress: Progress, show: Progress, *, boxes: int = 4, kwok: int = 20) -> Report:
    """The whole demo on a cluster of its own, which is gone afterwards; what was measured.

    `progress` gets what is done, `show` what the commands print.
    """
    started = time.monotonic()
    spec = ClusterSpec(name=CLUSTER, boxes=boxes, kwok=kwok, kubelet=FORMER[1], box_labels=POOL)
    cluster = await asyncio.to_thread(up, spec, progress)
    try:
        made = await stage.set_up(cluster, (FORMER[0], NEXT[0]), (FORMER[1], NEXT[1]), progress)
        try:
            jobs, nodes = await _upgrade(made, progress, show)
        finally:
            stage.strike(made)
    finally:
        cluster.close()
        await asyncio.to_thread(down, CLUSTER)
        progress("the cluster is gone")
    return Report(jobs=jobs, nodes=nodes, seconds=round(time.monotonic() - started, 1))


async def _upgrade(
    made: Stage, progress: Progress, show: Progress
) -> tuple[tuple[JobReport, ...], tuple[NodeReport, ...]]:
    controller = made.controller()
    await asyncio.to_thread(controller.start)
    try:
        await _open(made, controller, progress)
        async with made.admin() as kube:
            before = await evidence.versions(kube, made)
        since = timing.show(datetime.now(UTC))
        await _commands(made, show)
        await _train(made, progress, more=STEPS_BEFORE)
        members = {name: cast.members for name, cast in JOBS.items()}
        async with made.admin() as kube:
            return await evidence.jobs(kube, made, members), await evidence.nodes(kube, made, before, since)
    finally:
        await asyncio.to_thread(controller.stop)


async def _open(made: Stage, controller: Controller, progress: Progress) -> None:
    """The pool on the former versions, and the jobs training on it."""
    driver, kubelet, plugin = FORMER
    progress(f"installing driver {driver} (simulated), device plugin {plugin} and kubelet {kubelet}")
    async with made.admin() as kube:
        await stage.apply_stack(kube, made.stack(driver, kubelet, plugin))
        count = len(made.cluster.box_nodes())
        await waiting.eventually(
            kube,
            GPU_STACKS,
            "pool",
            lambda one: one.status.ready == count,
            seconds=INSTALL_SECONDS,
            what=f"installing (see {controller.log})",
        )
        for name, cast in JOBS.items():
            manifest = made.trainer(
                name, members=cast.members, gpus=GPUS, arguments=cast.arguments, annotations=cast.annotations
            )
            await stage.start_job(kube, manifest)
    await _train(made, progress, more=STEPS_BEFORE)


async def _train(made: Stage, progress: Progress, *, more: int) -> None:
    """Until every job has done so many more steps by its own log, or has come to its end."""
    goals = {name: _steps(made, name) + more for name in JOBS}
    await waiting.until(
        lambda: all(_steps(made, name) >= goal or _finished(made, name) for name, goal in goals.items()),
        seconds=TRAIN_SECONDS,
        what="training",
    )
    progress(", ".join(f"{name} is at step {_steps(made, name)}" for name in JOBS))


def _steps(made: Stage, name: str) -> int:
    story = read_job(made.journals(name))
    return story.steps_done if len(story.members) == JOBS[name].members else 0


def _finished(made: Stage, name: str) -> bool:
    return read_job(made.journals(name)).finished


async def _commands(made: Stage, show: Progress) -> None:
    """`upgrader plan` and `upgrader apply`, as a person types them."""
    driver, kubelet, plugin = NEXT
    kept = made.folder / "forecast.json"
    changes = {
        "driver.version": driver,
        "devicePlugin.image": made.images.plugins[plugin],
        "kubelet.version": kubelet,
        "kubelet.artifact": made.images.kubelets[kubelet],
    }
    flags = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
    await command(made.cluster, show, "plan", *flags, *STRATEGY, "-o", str(kept))
    await command(made.cluster, show, "apply", str(kept), "--auto-approve", "--watch")


async def command(cluster: Cluster, show: Callable[[str], None], *words: str, check: bool = True) -> Finished:
    """Run one `upgrader` command; what it prints is shown.

    Raises:
        ProgramFailedError: it ended with another code than 0, and `check` is set.
    """
    show(f"\n$ upgrader {' '.join(Path(word).name if word.startswith('/') else word for word in words)}")
    argv: list[str | Path] = [sys.executable, "-m", "upgrader", "--kubeconfig", cluster.kubeconfig, *words]
    env = {"UPGRADER_INSECURE_REGISTRIES": cluster.registry}
    done = await asyncio.to_thread(run, argv, timeout=COMMAND_SECONDS, env=env, on_line=show, check=check)
    show(done.stdout.decode())
    return done
