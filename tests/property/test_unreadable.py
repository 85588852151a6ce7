"""Whatever others write, the reading of the world raises nothing, and everything else is read as ever."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.hostile import DEEP, TEXTS, TOO_LONG, VALUES
from tests.support.manifests import checkpoint_request
from tests.support.observed import GPUS, NOW, OWN, RESOURCE, STACK, node, owned, pod, wire
from upgrader.api import kubernetes as k
from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.owner_state import owner_facts
from upgrader.core.patches import apply_merge_patch, value_at, with_value
from upgrader.core.untrusted import parse_quantity
from upgrader.core.workloads import gang_rules, suspend_patches
from upgrader.core.workloads.completion_estimate import LABEL_MAX_SECONDS, PAST_SECONDS
from upgrader.core.workloads.desired_replicas import LABEL_REPLICATED_JOB
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.owner_objects import LABEL_QUEUE
from upgrader.core.workloads.placement import Placement
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.facts.pod_facts import DECLARED
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.observe import cluster_snapshot

LONGEST = 4000
"""Characters of a sentence: it goes into a status beside hundreds of others."""

FILE = {names.ANNOTATION_METHOD: "file"}
POOL = {"pool": "a"}


def texts(*keys, most=None):
    """Annotations, or labels, of these names with anything in them."""
    value = TEXTS if most is None else TEXTS.map(lambda text: text[:most])
    return st.dictionaries(st.sampled_from(keys), value, max_size=4)


def values(*keys):
    """A part of a spec or status with anything in these fields."""
    return st.dictionaries(st.sampled_from(keys), VALUES, max_size=4)


ANNOTATIONS = texts(
    *DECLARED.values(),
    *names.ANNOTATIONS_VETO,
    names.ANNOTATION_REQUEST,
    names.ANNOTATION_STOPPED,
    names.ANNOTATION_GROUP_TOTAL,
    names.ANNOTATION_DEFAULT_CONTAINER,
    gang_rules.ANNOTATION_WORKLOAD,
    gang_rules.ANNOTATION_VOLCANO_GROUP,
    gang_rules.KAI_GROUP,
).map(lambda found: FILE | found)
LABELS = texts(
    *names.LABELS_RANK,
    LABEL_QUEUE,
    LABEL_MAX_SECONDS,
    LABEL_REPLICATED_JOB,
    gang_rules.LABEL_LWS_GROUP,
    gang_rules.LABEL_LWS_NAME,
    gang_rules.LABEL_JOBSET_UID,
    gang_rules.LABEL_KUBEFLOW_JOB,
    most=63,
)
SPECS = values(
    "activeDeadlineSeconds",
    "completions",
    "leaderWorkerTemplate",
    "managedBy",
    "maximumExecutionTimeSeconds",
    "mpiReplicaSpecs",
    "parallelism",
    "rayClusterSpec",
    "replicas",
    "replicatedJobs",
    "runPolicy",
    "suspend",
    "tasks",
    "workerGroupSpecs",
)
STATUSES = values("conditions", "replicaStatuses", "startTime", "state", "succeeded", "trainerStatus", *PAST_SECONDS)
OWNER_KINDS = st.sampled_from([(row.kind, row.api_version) for row in OWNERS])
QUANTITIES = st.one_of(TEXTS, st.integers(-(2**63), 2**63), st.sampled_from(["1k", "8", 8, "1500m", "12Ei"]))


def honest():
    return [pod("train-0", "a", annotations=FILE), pod("train-1", "b", annotations=FILE)]


def odd_pod(annotations, labels, gpus="8", deadline=None, owner=None, started="2026-11-21T08:00:00Z"):
    reference = {"kind": "Job", "apiVersion": "batch/v1", "name": "odd", "uid": "uid-odd", "controller": True}
    meta = {"name": "odd-0", "namespace": "odd", "uid": "uid-odd-0", "annotations": annotations, "labels": labels}
    container = {"name": "c", "resources": {"limits": {RESOURCE: gpus}}}
    spec = {"nodeName": "c", "containers": [container], "activeDeadlineSeconds": deadline}
    status = {"phase": "Running", "startTime": started}
    return wire({"metadata": meta | {"ownerReferences": [owner or reference]}, "spec": spec, "status": status}, k.Pod)


def world(*, pods=(), works=(), odd=None, namespaces=()):
    return ClusterReading(
        own_namespace=OWN,
        nodes={"a": node("a", POOL), "b": node("b", POOL), "c": odd or node("c", POOL)},
        pods=[*honest(), *pods],
        works=[owned(spec={"parallelism": 2}), *works],
        namespaces=list(namespaces),
        api_server_version="v1.36.0",
    )


def snapshot(seen):
    target = cluster_snapshot.target_of(STACK.spec, "pool-a")
    return cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW, stack="pool-a", empties=target)


def of_others(found):
    """The facts of everything but the odd node and the odd gang."""
    gangs = [one for one in found.gangs if one.namespace != "odd"]
    return [one for one in found.nodes if one.name != "c"], gangs, found.images, found.builds


EXPECTED = of_others(snapshot(world()))


def check(seen):
    """The snapshot, in which others are as ever and nothing is too long for a status."""
    found = snapshot(seen)
    assert of_others(found) == EXPECTED
    for gang in found.gangs:
        said = (gang.name, gang.undeclared_because, gang.cannot_stop, gang.resolved_by, gang.stopped_by, gang.lane)
        assert all(len(text) <= LONGEST for text in said)
        assert gang.earliest_stop is None or gang.earliest_stop > NOW.replace(year=1900)
        assert gang.gpus >= 1, "it is on GPUs, whatever number it writes"
    for one in found.nodes:
        assert all(len(text) <= LONGEST for text in (one.kernel, one.kubelet_settings, one.unreadable, one.claimed_by))
    msgspec.json.encode(found)
    return found


@examples(60)
@given(
    ANNOTATIONS,
    LABELS,
    QUANTITIES.filter(lambda one: parse_quantity(one) != 0),
    st.none() | st.integers(1, 2**63 - 1),
    TEXTS,
)
def test_pods(annotations, labels, gpus, deadline, started):
    check(world(pods=[odd_pod(annotations, labels, gpus, deadline, started=started)]))


@examples(60)
@given(OWNER_KINDS, ANNOTATIONS, LABELS, SPECS, STATUSES)
def test_owners(kind, annotations, labels, spec, status):
    name, version = kind
    work = owned(name, "odd", api_version=version, annotations=annotations, labels=labels, spec=spec, status=status)
    work = msgspec.structs.replace(work, namespace="odd")
    reference = {"kind": name, "apiVersion": version, "name": "odd", "uid": "uid-odd", "controller": True}
    check(world(pods=[odd_pod({}, {}, owner=reference)], works=[work]))


@examples(30)
@given(ANNOTATIONS)
def test_namespaces(annotations):
    space = wire({"metadata": {"name": "odd", "annotations": annotations}}, k.Namespace)
    check(world(pods=[odd_pod({}, {})], namespaces=[space]))


@examples(60)
@given(
    texts(
        names.ANNOTATION_KUBELET,
        names.ANNOTATION_PARAMETERS,
        names.ANNOTATION_NODE_FEATURES,
        names.ANNOTATION_REMOVED_DRIVER,
        names.ANNOTATION_CLAIMED_BY,
        names.ANNOTATION_ADOPT,
    ),
    QUANTITIES,
    TEXTS,
    TEXTS,
)
def test_nodes(annotations, gpus, added, told):
    taint = {"key": names.TAINT_MAINTENANCE, "value": "x", "effect": "NoSchedule", "timeAdded": added}
    info = dict.fromkeys(("kernelVersion", "kubeletVersion", "bootID", "osImage", "architecture"), told)
    amounts = {"capacity": {RESOURCE: gpus}, "allocatable": {RESOURCE: gpus}}
    odd = node("c", POOL, annotations, {"taints": [taint]}, nodeInfo=info, **amounts)
    check(world(pods=[odd_pod({}, {})], odd=odd))


UNREADABLE = {
    names.ANNOTATION_TIMEOUT: "8d",
    names.ANNOTATION_MIN_RUNTIME: TOO_LONG,
    names.ANNOTATION_EXPECTED_RUNTIME: "9999999999d",
    names.ANNOTATION_EXPECTED_COMPLETION: "0001-01-01T00:00:00+14:00",
    names.ANNOTATION_MAX_LOSS: "٣h",
    names.ANNOTATION_METHOD: "file," * 10_000,
    names.ANNOTATION_GROUP_TOTAL: TOO_LONG,
}


@pytest.mark.parametrize(("name", "value"), UNREADABLE.items(), ids=UNREADABLE)
def test_a_gang_with_a_value_that_cannot_be_read_is_undeclared_and_says_which(name, value):
    (gang,) = [one for one in check(world(pods=[odd_pod(FILE | {name: value}, {})])).gangs if one.namespace == "odd"]
    assert gang.method == ""
    assert name.rpartition("/")[2] in gang.undeclared_because


def test_a_gang_that_asks_for_a_number_of_gpus_that_cannot_be_read_is_undeclared():
    (gang,) = [one for one in check(world(pods=[odd_pod(FILE, {}, "many")])).gangs if one.namespace == "odd"]
    assert (gang.method, gang.gpus) == ("", 1)
    assert (
        gang.undeclared_because == "nvidia.com/gpu of container c of pod odd-0 cannot be read: 'many' is not a number."
    )


@pytest.mark.parametrize("annotation", [names.ANNOTATION_KUBELET, names.ANNOTATION_PARAMETERS])
@pytest.mark.parametrize("text", ["not json", f'{{"x":{DEEP}', '{"a":1}', '{"a":"' + "x" * 5000 + '"}'])
def test_a_node_whose_settings_cannot_be_read_is_blocked_and_left_alone(annotation, text):
    odd = node("c", POOL, {annotation: text})
    (found,) = [one for one in check(world(odd=odd)).nodes if one.name == "c"]
    assert found.left_alone
    assert found.unreadable.startswith(f"Annotation {annotation} of node c cannot be read: ")


_TERM = VALUES | st.fixed_dictionaries({"matchExpressions": VALUES | st.lists(values("key", "operator"), max_size=2)})
_TERMS = VALUES | st.fixed_dictionaries({"nodeSelectorTerms": VALUES | st.lists(_TERM, max_size=2)})
_REQUIRED = VALUES | st.fixed_dictionaries({"requiredDuringSchedulingIgnoredDuringExecution": _TERMS})
_AFFINITY = VALUES | st.fixed_dictionaries({"nodeAffinity": _REQUIRED})
_TOLERATIONS = VALUES | st.lists(values("key", "operator", "value"), max_size=2)
TEMPLATES = VALUES | st.fixed_dictionaries(
    {"spec": VALUES | st.fixed_dictionaries({"tolerations": _TOLERATIONS, "affinity": _AFFINITY})}
)


@examples(100)
@given(st.sampled_from([row for row in OWNERS if row.templates]), TEMPLATES)
def test_templates_of_owners_that_are_restarted(row, template):
    before = (not row.off_value) if isinstance(row.off_value, bool) else 4
    stopped = msgspec.json.encode(suspend_patches.SuspendRecord(plan="up", request="r", previous=before)).decode()
    owner = {"metadata": {"name": "odd", "annotations": {names.ANNOTATION_STOPPED: stopped}}, "spec": {}}
    for path in row.templates:
        owner = with_value(owner, tuple("worker" if key == "*" else key for key in path), template)
    owner = with_value(owner, row.field, row.off_value)
    placement = Placement(left_behind=("old",), settled=True, group="c")
    after = apply_merge_patch(owner, suspend_patches.restart_patch(row, owner, placement))
    assert value_at(after, row.field) == before


@examples(60)
@given(st.sampled_from(OWNERS), ANNOTATIONS, SPECS, STATUSES)
def test_owners_in_a_request(row, annotations, spec, status):
    if row.group in {"batch", "apps"}:  # the API server knows their fields, and takes no other sort of value for them
        spec = {key: value for key, value in spec.items() if isinstance(value, int)}
    owner = {"metadata": {"name": "odd", "uid": "u", "annotations": annotations}, "spec": spec, "status": status}
    assert owner_facts(row, owner, "u", 1).present
    stop, restart = suspend_patches.stop_patch(row, owner, "up", "r"), suspend_patches.restart_patch(row, owner, None)
    assert apply_merge_patch(owner, stop)["metadata"]["annotations"][names.ANNOTATION_STOPPED]
    assert not apply_merge_patch(owner, restart)["metadata"]["annotations"].get(names.ANNOTATION_STOPPED)


@examples(60)
@given(TEXTS, st.none() | TEXTS, st.none() | TEXTS)
async def test_requests(asked, marked, refused):
    """They are read by the plans of others too: for turns in lanes, and for what gangs have refused."""
    body = checkpoint_request("odd")
    status = {"phase": "Requested", "admittedAt": marked}
    odd = wire(body | {"spec": body["spec"] | {"askedAt": asked}, "status": status}, CheckpointRequest)
    asked_by_person = {key: value for key, value in body["spec"].items() if key != "plan"}
    odd_person = wire(body | {"spec": asked_by_person | {"askedAt": asked}, "status": status}, CheckpointRequest)
    good = wire(
        checkpoint_request("good") | {"spec": asked_by_person, "status": {"phase": "Requested"}}, CheckpointRequest
    )
    among, alone = [await request_history.turns_now(Lanes(all_of), 2) for all_of in ([odd, odd_person, good], [good])]
    assert (among or set()) >= (alone or set())
    status = {"phase": "Withdrawn", "reason": "Refused", "refusedAt": refused, "retryAfterSeconds": 604800}
    spec = body["spec"] | {"gang": "odd/Job/odd", "owner": {"kind": "Job", "name": "odd", "uid": "uid-odd"}}
    said = wire(body | {"spec": spec, "status": status}, CheckpointRequest)
    job = msgspec.structs.replace(owned("Job", "odd"), namespace="odd")
    found = snapshot(world(pods=[odd_pod(FILE, {})], works=[job]))
    after = request_history.with_refusals(found, [said], timedelta(minutes=5))
    assert of_others(after) == EXPECTED
    assert next(one for one in after.gangs if one.name == "odd/Job/odd").refusals.count == 1


class Lanes:
    """As much of a Context as a look at the lanes needs."""

    def __init__(self, requests):
        self.requests, self.cluster, self.clock = requests, self, self

    async def list(self, kind):
        return self.requests if kind is CHECKPOINT_REQUESTS else []

    def now(self):
        return NOW
