"""Scenes that every play has: a pool on its former versions, jobs that train, a person's two commands."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.api.resources import GPU_STACKS
from upgrader.process import Finished, run
from upgrader_dev.demo import stage, waiting
from upgrader_dev.demo.controller import Controller
from upgrader_dev.demo.journals import read_job
from upgrader_dev.demo.manifests import Manifest
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import Cluster

GPUS = 8
STRATEGY = ("--max-unavailable", "100%", "--no-canary", "--wait-for-completion", "5m")
COMMAND_SECONDS = 900.0


class Cast(Struct, frozen=True, kw_only=True):
    """A job of the play."""

    members: int = 1
    arguments: tuple[str, ...] = ()
    annotations: dict[str, str] = {}


class Jobs(Struct, frozen=True, kw_only=True):
    """The jobs of a play on their stage, and how long it waits for their steps."""

    made: Stage
    cast: Mapping[str, Cast]
    seconds: float

    async def start(self) -> None:
        """All of them."""
        async with self.made.admin() as kube:
            for name, one in self.cast.items():
                manifest = self.made.trainer(
                    name, members=one.members, gpus=GPUS, arguments=one.arguments, annotations=one.annotations
                )
                await stage.start_job(kube, manifest)

    async def train(self, progress: Progress, *, more: int) -> None:
        """Until every job has done so many more steps by its own log, or has come to its end."""
        goals = {name: self._steps(name) + more for name in self.cast}
        await waiting.wait_until(
            lambda: all(self._steps(name) >= goal or self._finished(name) for name, goal in goals.items()),
            seconds=self.seconds,
            what="training",
        )
        progress(", ".join(f"{name} is at step {self._steps(name)}" for name in self.cast))

    def _steps(self, name: str) -> int:
        story = read_job(self.made.journals(name))
        return story.steps_done if len(story.members) == self.cast[name].members else 0

    def _finished(self, name: str) -> bool:
        return read_job(self.made.journals(name)).finished


async def install_stack(made: Stage, controller: Controller, body: Manifest, count: int, seconds: float) -> None:
    """The stack, and all its nodes on it."""
    async with made.admin() as kube:
        await stage.apply_stack(kube, body)
        await waiting.wait_for_object(
            kube,
            GPU_STACKS,
            "pool",
            lambda one: one.status.ready == count,
            seconds=seconds,
            what=f"installing (see {controller.log})",
        )


async def upgrade_nodes(made: Stage, show: Progress, changes: Mapping[str, str]) -> None:
    """`upgrader plan` and `upgrader apply`, as a person types them."""
    kept = made.folder / "forecast.json"
    flags = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
    await run_command(made.cluster, show, "plan", *flags, *STRATEGY, "-o", str(kept))
    await run_command(made.cluster, show, "apply", str(kept), "--auto-approve", "--watch")


async def run_command(cluster: Cluster, show: Callable[[str], None], *words: str, check: bool = True) -> Finished:
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
