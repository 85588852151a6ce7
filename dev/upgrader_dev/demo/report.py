"""The reports of demo and e2e tests: measured from the jobs' logs, the API and the audit log, never constants."""

from msgspec import Struct


class VersionChange(Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """A version before and after."""

    before: str
    after: str


class JobReport(Struct, frozen=True, kw_only=True):
    """A training job."""

    name: str
    members: int
    steps_done: int
    acknowledged_step: int | None
    resumed_from_step: int | None
    steps_lost: int
    interruptions: int
    seconds_not_running: float
    refusals: int
    finished: bool  # it ran to its own end


class NodeReport(Struct, frozen=True, kw_only=True):
    """A node; `kind` is the sort of the node.

    virtual: everything is real except the GPU; box: everything except kernel and GPU; kwok: API objects only.
    `kernel` and `module` are the versions that a virtual node's kernel reports for itself and the loaded driver.
    """

    name: str
    kind: str
    driver: VersionChange
    device_plugin: VersionChange
    kubelet: VersionChange
    api_writes: int
    kernel: VersionChange | None = None
    module: VersionChange | None = None


class UpgradeReport(Struct, frozen=True, kw_only=True):
    """An ended node upgrade, from its steps: seconds per phase, summed up over repeated phases.

    `closed_seconds`: from cordon to uncordon; None if it ended before the node was cordoned.
    """

    node: str
    reason: str
    phase: str
    seconds: dict[str, float]
    closed_seconds: float | None


class DemoReport(Struct, frozen=True, kw_only=True):
    """The whole demo."""

    jobs: tuple[JobReport, ...]
    nodes: tuple[NodeReport, ...]
    upgrades: tuple[UpgradeReport, ...]
    seconds: float
