"""Metrics for Prometheus. Their labels contain no nodes and jobs, which are in Events, status and logs."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
"""A separate registry for tests of two controllers in one process, without the collectors of the process."""

PHASE_SECONDS = Histogram(
    "upgrader_phase_seconds",
    "Duration in seconds of the phases of state machines, observed at the end of a phase.",
    ["machine", "phase"],
    buckets=(1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 21600, 86400),
    registry=REGISTRY,
)
BLOCKERS = Gauge(
    "upgrader_blockers",
    "Number of blockers (nodes, gangs and upgrade groups that are not upgraded now), by plan and reason.",
    ["plan", "reason"],
    registry=REGISTRY,
)
LAST_RECONCILE = Gauge(
    "upgrader_last_reconcile_timestamp_seconds",
    "Time of the last successful reconciliation of an object of this kind (Unix time).",
    ["kind"],
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "upgrader_reconcile_errors_total",
    "Reconciliation steps that ended with an error.",
    ["kind", "error"],
    registry=REGISTRY,
)
STEP_FAULTS = Gauge(
    "upgrader_step_faults",
    "Failed parts of the last step of an object, which are retried, by kind and name of the object. "
    "For kind Cluster this includes nodes without a GpuStack that stay closed.",
    ["kind", "object"],
    registry=REGISTRY,
)
API_WRITES = Counter("upgrader_api_writes_total", "Writes sent to the API server.", ["verb", "kind"], registry=REGISTRY)
INFORMER_SYNCED = Gauge(
    "upgrader_informer_synced",
    "1 while the cache of a kind is in sync with the API server, else 0.",
    ["kind"],
    registry=REGISTRY,
)
INFORMER_RELISTS = Counter(
    "upgrader_informer_relists_total", "Number of lists of all objects of a kind.", ["kind"], registry=REGISTRY
)
WATCH_RESTARTS = Counter(
    "upgrader_watch_restarts_total",
    "Number of restarts of the watches of stacks, plans, upgrades, requests and images after an error.",
    registry=REGISTRY,
)
LEADER = Gauge("upgrader_leader", "1 while this process holds the lease, else 0.", registry=REGISTRY)


def show_blockers(plan: str, by_reason: Mapping[str, int]) -> None:
    """Replace the blockers of a plan; reasons without blockers have no series."""
    BLOCKERS.remove_by_labels({"plan": plan})
    for reason, count in by_reason.items():
        BLOCKERS.labels(plan=plan, reason=reason).set(count)


def show_faults(kind: str, name: str, count: int) -> None:
    """Set the number of failed parts of the last step of an object; 0 removes the series."""
    if count:
        STEP_FAULTS.labels(kind=kind, object=name).set(count)
    else:
        STEP_FAULTS.remove_by_labels({"kind": kind, "object": name})
