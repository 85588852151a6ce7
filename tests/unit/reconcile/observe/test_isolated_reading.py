"""A pod or owner that cannot be read makes its own gang one that is waited for, and nothing else of what is seen."""

import msgspec

from tests.support.observed import GPUS, NOW, STACK, node, pod, wire
from upgrader.api.kubernetes import OwnerObject
from upgrader.api.resources import owner_resource
from upgrader.core.workloads.owner_kinds import DECLARING, OWNERS
from upgrader.reconcile.facts.owner_reading import read_work
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.observe.cluster_snapshot import snapshot_of

ODD = "what nobody thought of"
FILE = {"gpu-upgrader.io/checkpoint-method": "file"}


class Odd(dict):
    """A map that raises where it is looked into."""

    def __init__(self) -> None:
        super().__init__(some="thing")

    def get(self, *_):
        raise RuntimeError(ODD)

    def items(self):
        raise RuntimeError(ODD)


def odd(seen, **parts):
    """The object, with a part of its metadata that cannot be looked into."""
    return msgspec.structs.replace(seen, metadata=msgspec.structs.replace(seen.metadata, **parts))


def gangs(pods, works):
    nodes = {name: node(name, labels=STACK.spec.node_selector) for name in ("a", "b")}
    seen = ClusterReading(
        own_namespace="gpu-upgrader", nodes=nodes, pods=pods, works=[read_work(*one) for one in works]
    )
    return {gang.name: gang for gang in snapshot_of(seen, STACK.spec, GPUS, NOW, stack="pool").gangs}


def owned(kind, name, **body):
    """The kind of an owner, and one as it comes over the wire."""
    resource = next(owner_resource(one) for one in (*OWNERS, *DECLARING) if one.kind == kind)
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    return resource, wire({"metadata": meta, **body}, OwnerObject)


def job(name):
    return owned("Job", name, spec={"parallelism": 1, "suspend": False})


FINE = pod("fine-0", "b", owner=("Job", "fine"), annotations=FILE)
FINE_JOB = job("fine")


def test_a_pod_that_cannot_be_read_is_waited_for():
    broken = odd(pod("train-0", "a", annotations=FILE), annotations=Odd())
    found = gangs([broken, FINE], [job("train"), FINE_JOB])
    (unread,) = (gang for name, gang in found.items() if name != "ml/Job/fine")
    assert (unread.method, unread.owner, unread.replicated, unread.nodes) == ("", None, False, {"a"})
    assert unread.undeclared_because == f"It cannot be read (pod train-0: RuntimeError: {ODD})."
    assert found["ml/Job/fine"] == gangs([FINE], [FINE_JOB])["ml/Job/fine"]
    assert found["ml/Job/fine"].method == "file"


def test_an_owner_that_cannot_be_read_makes_its_gang_one_that_is_waited_for():
    kind, seen = job("train")
    found = gangs([pod("train-0", "a", annotations=FILE), FINE], [(kind, odd(seen, annotations=Odd())), FINE_JOB])
    assert set(found) == {"ml/Job/train", "ml/Job/fine"}
    assert found["ml/Job/train"].method == ""
    assert found["ml/Job/train"].owner is None
    assert "Job train: RuntimeError" in found["ml/Job/train"].undeclared_because
    assert found["ml/Job/fine"].method == "file"


def test_pods_below_an_owner_that_cannot_be_read_are_not_evicted():
    """It may declare what keeps them where they are."""
    kind, web = owned("ReplicaSet", "web")
    pods = [pod("web-0", "a", owner=("ReplicaSet", "web"))]
    assert gangs(pods, [(kind, web)])["ml/ReplicaSet/web"].replicated
    unread = gangs(pods, [(kind, odd(web, annotations=Odd()))])["ml/ReplicaSet/web"]
    assert (unread.replicated, unread.method) == (False, "")
    assert "ReplicaSet web" in unread.undeclared_because
