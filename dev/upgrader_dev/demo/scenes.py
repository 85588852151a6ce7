"""Steps of both demos: a pool on its previous versions, jobs that train, and the commands of an administrator."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.api.resources import GPU_STACKS
from upgrader.process import FinishedProgram, run
from upgrader_dev.demo import stage, waiting
from upgrader_dev.demo.controller import ControllerProcess
from upgrader_dev.demo.journals import read_job
from upgrader_dev.demo.manifests import Manifest
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.devcluster import DevCluster

GPUS = 8
STRATEGY = ("--max-unavailable", "100%", "--no-canary", "--wait-for-completion", "5m")
COMMAND_SECONDS = 900.0


class TrainingJobSettings(Struct, frozen=True, kw_only=True):
    """The settings of a job of the demo."""

    members: int = 1
    arguments: tuple[str, ...] = ()
    annotations: dict[str, str] = {}


class Jobs(Struct, frozen=True, kw_only=True):
    """The jobs of the demo, and how long to wait for their steps."""

    demo_stage: Stage
    job_settings: Mapping[str, TrainingJobSettings]
    seconds: float

    async def start_jobs(self) -> None:
        """Start all jobs."""
        async with self.demo_stage.admin() as kube:
            for name, settings in self.job_settings.items():
                manifest = self.demo_stage.trainer(
                    name,
                    members=settings.members,
                    gpus=GPUS,
                    arguments=settings.arguments,
                    annotations=settings.annotations,
                )
                await stage.start_job(kube, manifest)

    async def wait_for_steps(self, progress: Progress, *, additional: int) -> None:
        """Wait until every job has done this many more steps according to its log, or has ended."""
        goals = {name: self._steps(name) + additional for name in self.job_settings}
        await waiting.wait_until(
            lambda: all(self._steps(name) >= goal or self._has_finished(name) for name, goal in goals.items()),
            seconds=self.seconds,
            what="training",
        )
        progress(", ".join(f"{name} is at step {self._steps(name)}" for name in self.job_settings))

    def _steps(self, name: str) -> int:
        history = read_job(self.demo_stage.journals(name))
        return history.steps_done if len(history.members) == self.job_settings[name].members else 0

    def _has_finished(self, name: str) -> bool:
        return read_job(self.demo_stage.journals(name)).finished


async def install_stack(
    demo_stage: Stage, controller: ControllerProcess, body: Manifest, count: int, seconds: float
) -> None:
    """Apply the stack, and wait until all its nodes are ready."""
    async with demo_stage.admin() as kube:
        await stage.apply_stack(kube, body)
        await waiting.wait_for_object(
            kube,
            GPU_STACKS,
            "pool",
            lambda stack: stack.status.ready == count,
            seconds=seconds,
            what=f"installing (see {controller.log})",
        )


async def upgrade_nodes(demo_stage: Stage, show: Progress, changes: Mapping[str, str]) -> None:
    """Run `upgrader plan` and `upgrader apply`, as an administrator does."""
    forecast_file = demo_stage.folder / "forecast.json"
    flags = [word for path, value in changes.items() for word in ("--set", f"{path}={value}")]
    await run_command(demo_stage.cluster, show, "plan", *flags, *STRATEGY, "-o", str(forecast_file))
    await run_command(demo_stage.cluster, show, "apply", str(forecast_file), "--auto-approve", "--watch")


async def run_command(
    cluster: DevCluster, show: Callable[[str], None], *words: str, check: bool = True
) -> FinishedProgram:
    """Run one `upgrader` command and show its output.

    Raises:
        ProgramFailedError: its exit code is not 0, and `check` is set.
    """
    show(f"\n$ upgrader {' '.join(Path(word).name if word.startswith('/') else word for word in words)}")
    argv: list[str | Path] = [sys.executable, "-m", "upgrader", "--kubeconfig", cluster.kubeconfig, *words]
    env = {"UPGRADER_INSECURE_REGISTRIES": cluster.registry}
    finished = await asyncio.to_thread(run, argv, timeout=COMMAND_SECONDS, env=env, on_line=show, check=check)
    show(finished.stdout.decode())
    return finished
