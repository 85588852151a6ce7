"""deploy/admission-*.yaml on a real API server: what pods get, what they do not, and that both go without a trace."""

import contextlib
import uuid

import msgspec
import pytest
import yaml

from tests.support import manifests as m
from tests.support.gangs_on_api import context_of
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import NAMESPACES
from upgrader.cli.shared import policies
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.kube.transport import Call
from upgrader.reconcile.facts.pod_facts import member_facts

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(300)]

LEARNS_SECONDS = 120
"""The API server learns policies in about a second, and a new kind that one is parameterised by in half a minute."""

POLICIES = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "MutatingAdmissionPolicy": f"{POLICIES}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{POLICIES}/mutatingadmissionpolicybindings",
}
FILE = {names.ANNOTATION_METHOD: "file"}


def fields(path):
    return {"apiVersion": "v1", "fieldPath": path}


REQUEST = {
    "name": "gpu-upgrader-request",
    "downwardAPI": {
        "items": [
            {"path": "checkpoint-request", "fieldRef": fields(f"metadata.annotations['{names.ANNOTATION_REQUEST}']")},
            {"path": "park-seconds", "fieldRef": fields(f"metadata.annotations['{names.ANNOTATION_PARK_SECONDS}']")},
        ],
        "defaultMode": 420,
    },
}
ANSWERS = {"name": "gpu-upgrader-answers", "emptyDir": {}}
REQUEST_AT = {"name": "gpu-upgrader-request", "mountPath": names.REQUEST_DIRECTORY}
ANSWERS_AT = {"name": "gpu-upgrader-answers", "mountPath": names.ANSWER_DIRECTORY}
POD_UID = {"name": "POD_UID", "valueFrom": {"fieldRef": fields("metadata.uid")}}


def pod(name="p", *, annotations=FILE, labels=None, **spec):
    containers = [{"name": "train", "image": "i:1"}]
    meta = {"name": name, "annotations": dict(annotations), "labels": labels or {}}
    return {"metadata": meta, "spec": {"automountServiceAccountToken": False, "containers": containers, **spec}}


@pytest.fixture
def write(api):
    """Any request; the answer as it is on the wire."""

    async def send(method, path, body=None, **query):
        sort = "application/merge-patch+json" if method == "PATCH" else "application/json"
        call = Call(method=method, path=path, query=tuple(query.items()), body=body, content_type=sort)
        return msgspec.json.decode(await api._transport.write(call))

    return send


@pytest.fixture
async def spaces(api):
    """A namespace that opted in and one that did not."""
    made = []
    for labels in ({names.LABEL_ADMISSION: "true"}, {}):
        body = {"metadata": {"name": f"t{uuid.uuid4().hex[:10]}", "labels": labels}}
        made.append(await api.create(NAMESPACES, body))
    yield [one.metadata.name for one in made]
    for one in made:
        await api.delete(NAMESPACES, one.metadata)


@pytest.fixture
def created(write):
    """The spec that a pod has once the API server has taken it (not stored)."""

    async def create(namespace, body):
        return (await write("POST", f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All"))["spec"]

    return create


@pytest.fixture
def installed(write, created, spaces):
    """A file of deploy/ while the block runs: from when a probing pod is changed until it is not any more."""

    @contextlib.asynccontextmanager
    async def install(file, probe):
        plain = await created(spaces[1], probe)

        async def spec():
            return await created(spaces[0], probe)

        documents = list(yaml.safe_load_all((ROOT / "deploy" / file).read_text()))
        for document in documents:
            await write("POST", PATHS[document["kind"]], document)
        try:
            await eventually(spec, lambda seen: seen != plain, LEARNS_SECONDS)
            yield
        finally:
            for document in documents:
                await write("DELETE", f"{PATHS[document['kind']]}/{document['metadata']['name']}")
        await eventually(spec, lambda seen: seen == plain, LEARNS_SECONDS)

    return install


async def test_a_pod_that_declares_file_gets_what_it_lacks_and_nothing_else(created, spaces, installed):
    within, outside = spaces
    async with installed("admission-mounts.yaml", pod()):
        seen, plain = await created(within, pod()), await created(outside, pod())
        [train] = plain["containers"]
        added = {"env": [POD_UID], "volumeMounts": [REQUEST_AT, ANSWERS_AT]}
        assert seen == plain | {"volumes": [REQUEST, ANSWERS], "containers": [train | added]}
        assert await created(within, {**pod(), "spec": seen}) == seen
        taken = msgspec.convert({**pod(), "spec": seen}, Pod)
        assert member_facts(taken, PoolGpus(resource="nvidia.com/gpu")).mounted
        for unchanged in (
            pod(annotations={}),
            pod(annotations={names.ANNOTATION_METHOD: "api"}),
            pod(annotations={names.ANNOTATION_METHOD: "profile"}),
            pod(annotations=FILE | {names.ANNOTATION_CONTAINER: "nobody"}),
        ):
            assert await created(within, unchanged) == await created(outside, unchanged)


async def test_it_adds_to_what_a_pod_has_and_only_in_the_container_that_answers(created, spaces, installed):
    within, outside = spaces
    annotations = {names.ANNOTATION_METHOD: "exec, file", names.ANNOTATION_CONTAINER: "train"}
    train = {
        "name": "train",
        "image": "i:1",
        "env": [{"name": "POD_UID", "value": "mine"}],
        "volumeMounts": [{"name": "own", "mountPath": f"{names.ANSWER_DIRECTORY}/"}],
    }
    body = pod(
        annotations=annotations,
        containers=[{"name": "side", "image": "i:1"}, train],
        volumes=[{"name": "own", "emptyDir": {}}],
    )
    async with installed("admission-mounts.yaml", pod()):
        seen, plain = await created(within, body), await created(outside, body)
        side, answering = plain["containers"]
        answering |= {"volumeMounts": [*answering["volumeMounts"], REQUEST_AT]}
        assert seen == plain | {"volumes": [*plain["volumes"], REQUEST], "containers": [side, answering]}


async def test_a_namespace_may_declare_for_its_pods(api, write, created, spaces, installed):
    within, outside = spaces
    patch = {"metadata": {"annotations": FILE}}
    meta = (await api.get(NAMESPACES, within)).metadata
    await api.merge(NAMESPACES, meta, patch)
    own = pod(annotations={names.ANNOTATION_METHOD: "none"})
    async with installed("admission-mounts.yaml", pod()):

        async def volumes():
            return (await created(within, pod(annotations={}))).get("volumes")

        assert await eventually(volumes) == [REQUEST, ANSWERS]
        assert await created(within, own) == await created(outside, own)


STEERING = [
    {"key": names.LABEL_REVISION, "operator": "NotIn", "values": ["r1", "r2"]},
    {"key": names.LABEL_REVISION, "operator": "Exists"},
]
TOLERATION = {"key": names.TAINT_MAINTENANCE, "operator": "Equal", "value": "c-1", "effect": "NoSchedule"}
PLACEMENT = {"leftBehind": ["r1", "r2"], "settled": True, "group": "c-1"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NODE = {"key": "metadata.name", "operator": "In", "values": ["n"]}
GANG = {"jobset.sigs.k8s.io/jobset-name": "g"}


def checkpoint_request(namespace, *, finalizers=(names.FINALIZER,), **placement):
    whole = m.checkpoint_request()
    meta = whole["metadata"] | {"namespace": namespace, "finalizers": list(finalizers)}
    return whole | {"metadata": meta, "spec": whole["spec"] | {"placement": placement}}


@pytest.fixture
def restarted(write, spaces):
    """A request whose gang was restarted there, until the block ends."""
    within, _ = spaces
    kind = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{within}/checkpointrequests"

    @contextlib.asynccontextmanager
    async def record(**placement):
        made = await write("POST", kind, checkpoint_request(within, **placement))
        path = f"{kind}/{made['metadata']['name']}"
        try:
            yield path
        finally:
            await write("PATCH", path, {"metadata": {"finalizers": None}})
            await write("DELETE", path)

    return record


async def test_pods_of_a_restarted_gang_keep_off_what_it_left_behind(write, created, spaces, installed, restarted):
    within, outside = spaces
    probe = pod(labels=GANG)
    async with restarted(**PLACEMENT, podLabels=GANG) as path, installed("admission-steering.yaml", probe):
        plain = await created(outside, probe)
        steered = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": STEERING}]
                }
            }
        }
        seen = await created(within, probe)
        assert seen == plain | {"affinity": steered, "tolerations": [*plain["tolerations"], TOLERATION]}
        assert await created(within, {**probe, "spec": seen}) == seen

        for stranger in (pod(), pod(labels={"jobset.sigs.k8s.io/jobset-name": "another"})):
            assert await created(within, stranger) == await created(outside, stranger)
        other = {"podAffinity": {}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
        assert (await created(within, pod(labels=GANG, affinity=other)))["affinity"] == {"podAffinity": {}} | steered

        terms = [{"matchExpressions": [ZONE]}, {"matchFields": [NODE]}, {}]
        own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        seen = await created(within, pod(labels=GANG, affinity=own))
        assert seen["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
            "nodeSelectorTerms": [
                {"matchExpressions": [ZONE, *STEERING]},
                {"matchExpressions": STEERING, "matchFields": [NODE]},
                {},
            ]
        }

        # the plan has ended: it takes its finalizer away
        await write("PATCH", path, {"metadata": {"finalizers": None}})

        async def spec():
            return await created(within, probe)

        assert await eventually(spec, lambda one: one == plain) == plain


async def test_without_labels_the_owner_says_whose_pods_they_are(created, spaces, installed, restarted):
    within, outside = spaces
    uid = m.checkpoint_request()["spec"]["owner"]["uid"]

    def owned(uid):
        whole = pod()
        owner = {"apiVersion": "v1", "kind": "Gang", "name": "g", "uid": uid, "controller": True}
        return whole | {"metadata": whole["metadata"] | {"ownerReferences": [owner]}}

    async with restarted(leftBehind=["r1"]), installed("admission-steering.yaml", owned(uid)):
        plain = await created(outside, owned(uid))
        only = [{"matchExpressions": [STEERING[0] | {"values": ["r1"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": only}}
        assert await created(within, owned(uid)) == plain | {"affinity": {"nodeAffinity": required}}
        assert await created(within, owned("another")) == await created(outside, owned("another"))


async def test_uninstalling_deletes_them_all_and_is_silent_where_there_are_none(api, write):
    for policy in policies.SHIPPED:
        for document in yaml.safe_load_all((ROOT / policy.file).read_text()):
            kind = next(kind for kind in (policy.kind, policy.binding) if kind.kind == document["kind"])
            await write("POST", kind.path(), document)
    said = []
    await policies.remove_policies(context_of(api), said.append)
    assert said == [f"admission policy {policy.name} is deleted" for policy in policies.SHIPPED]
    found = [await api.get(kind, each.name) for each in policies.SHIPPED for kind in (each.kind, each.binding)]
    assert found == [None] * 6
    await policies.remove_policies(context_of(api), said.append)
    assert len(said) == 3
