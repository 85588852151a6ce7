"""Pods, their owners and the gangs that they make, with everything that a test does not name."""

from tests.support.facts import member
from upgrader.core.model.fleet import Gang, Owner, Terms
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.gang_rules import PodMetadata
from upgrader.core.workloads.gangs import PodFacts, gangs_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import Work

FILE = CheckpointAnnotations(method="file")
TRAIN = Owner(kind="Job", name="train", uid="uid-job-train")
GROUP = "scheduling.x-k8s.io/pod-group"
NO_CONTROLLER = "Its pods have no controller that would create them again."


def pod(name, at="a", *, controller=TRAIN, group="", declared=FILE, storage_class="", **changes):
    facts = member(name, at, **changes)
    metadata = PodMetadata(
        pod=name,
        uid=facts.uid,
        namespace=facts.namespace,
        labels={**facts.labels, **({GROUP: group} if group else {})},
        controller=controller,
    )
    return PodFacts(member=facts, metadata=metadata, declared=declared, storage_class=storage_class)


def job(name="train", wanted=1, *, succeeded=0, suspended=False, **changes):
    facts = {
        "owner": Owner(kind="Job", name=name, uid=f"uid-job-{name}"),
        "namespace": "ml",
        "spec": {"parallelism": wanted, "completions": wanted, "suspend": suspended},
        "status": {"succeeded": succeeded},
    }
    return Work(**{**facts, **changes})


def found(pods, works=(), spaces=None, **more):
    return gangs_of(pods, Chains(works), spaces or {}, **more)


def expected(name="ml/Job/train", kind="Job", members=("train-0",), owner=TRAIN, wanted=1, method="file", **changes):
    facts = {
        "name": name,
        "namespace": "ml",
        "kind": kind,
        "members": tuple(one if not isinstance(one, str) else member(one, "a") for one in members),
        "owner": owner,
        "wanted": wanted,
        "method": method,
        "terms": Terms(methods=(method,) if method not in {"", "none"} else ()),
        "resolved_by": "the same owner (Job train)",
        "owners": (TRAIN,),
    }
    return Gang(**{**facts, **changes})


def grouped(group="g", owner=None, **changes):
    facts = {
        "name": f"ml/pod-group/{group}",
        "kind": "pod-group",
        "owner": owner,
        "resolved_by": f"label {GROUP}={group} (coscheduling)",
    }
    return expected(**{**facts, **changes})
