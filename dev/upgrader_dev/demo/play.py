"""The demo on boxes: a pool with three training jobs is upgraded to another driver, device plugin and kubelet."""

import time

from upgrader.api import names
from upgrader_dev.demo import stage, upgrade_play
from upgrader_dev.demo.manifests import POOL
from upgrader_dev.demo.report import DemoReport
from upgrader_dev.demo.scenes import TrainingJobSettings
from upgrader_dev.demo.stage import Progress, Stage
from upgrader_dev.demo.upgrade_play import CLUSTER, Play
from upgrader_dev.devcluster import ClusterSpec, DevCluster

FORMER, NEXT = ("1.0.0", "1.34.4", "1"), ("2.0.0", "1.35.4", "2")
"""Driver, kubelet and device plugin before and after."""


JOBS = {
    "gang": TrainingJobSettings(members=2),
    "short": TrainingJobSettings(arguments=("--steps", "900"), annotations={names.ANNOTATION_EXPECTED_RUNTIME: "2m"}),
    "unwilling": TrainingJobSettings(arguments=("--behaviour", "refuse-once", "--retry-after", "10")),
}
"""A job with two members, one that ends by itself and is waited for, and one that refuses once."""


async def play_demo(progress: Progress, show: Progress, *, boxes: int = 4, kwok: int = 20) -> DemoReport:
    """Run the whole demo on a new cluster, which is deleted afterwards; returns the measurements.

    `progress` receives the progress, `show` the output of the commands.
    """
    started = time.monotonic()
    spec = ClusterSpec(name=CLUSTER, boxes=boxes, kwok=kwok, kubelet=FORMER[1], box_labels=POOL)

    async def build_stage(cluster: DevCluster) -> Stage:
        return await stage.set_up(cluster, (FORMER[0], NEXT[0]), (FORMER[1], NEXT[1]), progress)

    return await upgrade_play.run_play(spec, build_stage, _make_play, progress, show, started=started)


def _make_play(demo_stage: Stage) -> Play:
    driver, kubelet, plugin = FORMER
    return Play(
        summary=f"driver {driver} (simulated), device plugin {plugin} and kubelet {kubelet}",
        body=demo_stage.stack(driver, kubelet, plugin),
        nodes=len(demo_stage.cluster.box_nodes()),
        changes={"driver.version": NEXT[0], **upgrade_play.version_changes(demo_stage, *NEXT[1:])},
        jobs=JOBS,
        steps=30,
        install_seconds=180.0,
        train_seconds=60.0,
    )
