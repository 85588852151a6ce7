"""Laws of who belongs together, over random pods and owners."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.facts import member
from upgrader.core.constraints.upgrade_groups import build_groups
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.gang_rules import PodMetadata, UserRule, rules_of
from upgrader.core.workloads.gangs import ENDED, PodFacts, gangs_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import Work

KINDS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "StatefulSet": "apps/v1",
    "Workflow": "argoproj.io/v1alpha1",
}
LABELS = (
    "run",
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-uid",
    "training.kubeflow.org/job-name",
)
OWNERS = [
    Owner(kind=kind, name=f"{kind.lower()}-{number}", uid=f"{kind}-{number}", api_version=version)
    for kind, version in KINDS.items()
    for number in range(2)
]


@st.composite
def works(draw):
    """Any of the owners, each under any other: also in circles, and under what was not read."""
    chosen = draw(st.lists(st.sampled_from(OWNERS), unique=True))
    above = st.one_of(st.none(), st.sampled_from(OWNERS))
    return [
        Work(owner=one, namespace="ml", controller=draw(above), spec={"parallelism": draw(st.integers(0, 3))})
        for one in chosen
    ]


@st.composite
def pods(draw):
    count = draw(st.integers(1, 8))
    found = []
    for number in range(count):
        facts = member(
            f"run-{number % 3}-{number}",
            draw(st.sampled_from(["", "a", "b", "cpu"])),
            gpus=draw(st.sampled_from([0, 8])),
            phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
        )
        labels = draw(st.dictionaries(st.sampled_from(LABELS), st.sampled_from(["x", "y", "JobSet-0"]), max_size=2))
        metadata = PodMetadata(
            pod=facts.pod,
            uid=facts.uid,
            namespace="ml",
            labels=labels,
            controller=draw(st.one_of(st.none(), st.sampled_from(OWNERS))),
        )
        declared = CheckpointAnnotations(method=draw(st.sampled_from(["", "api"])))
        found.append(PodFacts(member=facts, metadata=metadata, declared=declared))
    return found


RULES = st.sampled_from([(), (UserRule(label="run"),), (UserRule(regex=r"run-(\d)-.*"),)])


def found(seen, known, rules):
    return gangs_of(
        seen, Chains(known, {one.metadata.uid: one.metadata.controller for one in seen}), {}, rules_of(rules)
    )


@given(seen=pods(), known=works(), rules=RULES, chance=st.randoms(use_true_random=False))
def test_the_order_of_pods_and_owners_never_matters(seen, known, rules, chance):
    other_pods, other_works = seen[:], known[:]
    chance.shuffle(other_pods)
    chance.shuffle(other_works)
    assert found(other_pods, other_works, rules) == found(seen, known, rules)


@given(seen=pods(), known=works(), rules=RULES)
def test_each_pod_with_gpus_is_in_exactly_one_gang_and_every_gang_has_one(seen, known, rules):
    gangs = found(seen, known, rules)
    alive = [one.member for one in seen if one.member.phase not in ENDED]
    members = [each for gang in gangs for each in gang.members]
    assert len({each.uid for each in members}) == len(members)
    assert {each.uid for each in alive if each.gpus} <= {each.uid for each in members} <= {each.uid for each in alive}
    assert all(any(each.gpus for each in gang.members) for gang in gangs)
    assert len({gang.name for gang in gangs}) == len(gangs)


@given(seen=pods(), known=works(), rules=RULES)
def test_a_gang_has_a_switch_or_says_why_not_and_no_switch_is_of_two_gangs(seen, known, rules):
    gangs = found(seen, known, rules)
    for gang in gangs:
        assert gang.resolved_by
        assert gang.replicated or (gang.owner is None) is bool(gang.cannot_stop)
        assert gang.owner is None or gang.owner in {work.owner for work in known}
    switches = [gang.owner.uid for gang in gangs if gang.owner is not None]
    assert len(set(switches)) == len(switches)


@given(seen=pods(), known=works(), rules=RULES)
def test_a_launcher_on_a_node_of_no_stack_drags_no_node_in(seen, known, rules):
    """Wherever it runs out there, or if it has no node yet, the same nodes are upgraded together."""
    made = [build_groups(["a", "b"], found(seen, known, rules))]
    for elsewhere in ("cpu-2", ""):
        moved = [at(one, elsewhere) if one.member.node == "cpu" and not one.member.gpus else one for one in seen]
        made.append(build_groups(["a", "b"], found(moved, known, rules)))
    assert made[0] == made[1] == made[2]


def at(pod, node):
    return msgspec.structs.replace(pod, member=msgspec.structs.replace(pod.member, node=node))
