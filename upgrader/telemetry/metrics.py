"""What Prometheus scrapes. No label names a node or a job: those are in Events, status and logs."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
"""Our own, so that tests of two controllers in one process can tell; the process's own collectors are not in it."""

PHASE_SECONDS = Histogram(
    "upgrader_phase_seconds",
    "How long a phase of a state machine lasted, by the phase that was left.",
    ["machine", "phase"],
    buckets=(1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 21600, 86400),
    registry=REGISTRY,
)
BLOCKERS = Gauge(
    "upgrader_blockers",
    "Nodes, gangs and upgrade groups that wait, by plan and reason.",
    ["plan", "reason"],
    registry=REGISTRY,
)
LAST_RECONCILE = Gauge(
    "upgrader_last_reconcile_timestamp_seconds",
    "When an object of this kind was last brought to its end without an error (Unix time).",
    ["kind"],
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "upgrader_reconcile_errors_total", "Reconcile steps that ended with an error.", ["kind", "error"], registry=REGISTRY
)
STEP_FAULTS = Gauge(
    "upgrader_step_faults",
    "Parts of an object's latest step that failed and are tried again, by kind and name of the object. "
    "For kind Cluster, nodes that stay closed without a GpuStack count, too.",
    ["kind", "object"],
    registry=REGISTRY,
)
API_WRITES = Counter("upgrader_api_writes_total", "Writes sent to the API server.", ["verb", "kind"], registry=REGISTRY)
INFORMER_SYNCED = Gauge(
    "upgrader_informer_synced",
    "1 while what watches show of a kind is in step with the API server, else 0.",
    ["kind"],
    registry=REGISTRY,
)
INFORMER_RELISTS = Counter(
    "upgrader_informer_relists_total", "How often all objects of a kind were listed anew.", ["kind"], registry=REGISTRY
)
WATCH_RESTARTS = Counter(
    "upgrader_watch_restarts_total",
    "How often the watches of stacks, plans, upgrades, requests and images ended by an error and were begun anew.",
    registry=REGISTRY,
)
LEADER = Gauge("upgrader_leader", "1 while this process holds the lease, else 0.", registry=REGISTRY)


def show_blockers(plan: str, by_reason: Mapping[str, int]) -> None:
    """Replace the blockers of a plan, so that a reason that is gone shows nothing."""
    BLOCKERS.remove_by_labels({"plan": plan})
    for reason, count in by_reason.items():
        BLOCKERS.labels(plan=plan, reason=reason).set(count)


def show_faults(kind: str, name: str, count: int) -> None:
    """How many parts of an object's latest step failed; none shows nothing."""
    if count:
        STEP_FAULTS.labels(kind=kind, object=name).set(count)
    else:
        STEP_FAULTS.remove_by_labels({"kind": kind, "object": name})
