"""The gangs of a pool, derived from all pods and owners of each namespace.

Owners and groups never cross a namespace, so its gangs follow from its objects alone; if none of these has changed
since the last step, the gangs are reused.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import GpuStackSpec
from upgrader.core.model.fleet import Gang
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations, nearest_declared
from upgrader.core.workloads.completion_estimate import tells_time
from upgrader.core.workloads.gang_rules import MembershipRule, PodMetadata, UserRule, rules_of
from upgrader.core.workloads.gangs import PodFacts, gangs_of
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import Work
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.pod_facts import controller_of, is_own_pod, read_declared, read_pod, with_mates
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.facts.storage import Classes, classes_of

T = TypeVar("T")


class _Inputs(NamedTuple):
    """All inputs of the gangs of a namespace."""

    versions: tuple[tuple[str, str], ...]  # uid and resourceVersion of its pods
    works: tuple[Work, ...]
    declared: CheckpointAnnotations  # by the namespace itself
    classes: Classes
    gpus: PoolGpus
    rules: tuple[object, ...]  # the stack's own
    emptied: frozenset[str]
    method: str
    now: datetime | None  # None: time changes nothing


@dataclass
class _Namespace:
    """The cached gangs of a namespace."""

    pods: ObjectCache[PodFacts] = field(default_factory=ObjectCache)
    inputs: _Inputs | None = None
    gangs: tuple[Gang, ...] = ()


class GangCache:
    """The gangs of one pool, cached by one loop from one step to the next."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}

    def read(
        self, seen: ClusterReading, gpus: PoolGpus, spec: GpuStackSpec, now: datetime, emptied: frozenset[str]
    ) -> tuple[Gang, ...]:
        """All gangs, by name.

        Args:
            seen: objects that were read.
            gpus: resources by which pods hold GPUs.
            spec: spec of the stack, with its gang rules.
            now: the time.
            emptied: names of nodes whose pods would be ended, with GPUs or without.
        """
        rules = rules_for(spec)
        # The operator's own pods belong to no gang; on a node with every operand they are the majority.
        pods = _by_namespace(
            (pod.metadata.namespace, pod) for pod in seen.pods if not is_own_pod(pod, seen.own_namespace)
        )
        works = _by_namespace((work.namespace, work) for work in seen.works)
        claims = _by_namespace((claim.metadata.namespace, claim) for claim in seen.claims)
        spaces = {namespace.metadata.name: read_declared(namespace.metadata) for namespace in seen.namespaces}
        self._namespaces = {name: self._namespaces.get(name) or _Namespace() for name in pods}
        gangs: list[Gang] = []
        for name, its in pods.items():
            inputs = _Inputs(
                versions=tuple((pod.metadata.uid, pod.metadata.resource_version) for pod in its),
                works=tuple(works.get(name, ())),
                declared=spaces.get(name, CheckpointAnnotations()),
                classes=classes_of(claims.get(name, ())),
                gpus=gpus,
                rules=tuple(spec.gangs),
                emptied=emptied,
                method=seen.method,
                now=now if any(map(tells_time, works.get(name, ()))) else None,
            )
            gangs += _gangs_of_namespace(self._namespaces[name], inputs, name, its, rules, now)
        return tuple(sorted(gangs, key=lambda gang: gang.name))


def rules_for(spec: GpuStackSpec) -> tuple[MembershipRule, ...]:
    """The gang rules: the stack's own rules, then the built-in rules.

    Raises:
        ConfigurationError: a rule of the stack is invalid.
    """
    return rules_of(UserRule(label=gang.label or "", regex=gang.regex or "") for gang in spec.gangs)


def _gangs_of_namespace(
    space: _Namespace, inputs: _Inputs, name: str, pods: Sequence[Pod], rules: Sequence[MembershipRule], now: datetime
) -> tuple[Gang, ...]:
    """The gangs of one namespace, derived again if an input has changed."""
    before = space.inputs
    if before is not None:  # reuse equal objects, since they are compared again for each pod
        inputs = _Inputs._make(old if old == new else new for old, new in zip(before, inputs, strict=True))
    if before is None or inputs != before:
        space.gangs = _derive_gangs(space.pods, inputs, name, pods, rules, now)
    # Without uid and version, a change of an object cannot be detected.
    space.inputs = inputs if all(uid and version for uid, version in inputs.versions) else None
    return space.gangs


def _derive_gangs(
    kept: ObjectCache[PodFacts],
    inputs: _Inputs,
    name: str,
    pods: Sequence[Pod],
    rules: Sequence[MembershipRule],
    now: datetime,
) -> tuple[Gang, ...]:
    gpus, emptied = inputs.gpus, inputs.emptied
    chains = Chains(inputs.works, {pod.metadata.uid: controller_of(pod.metadata) for pod in pods})

    def around(metadata: PodMetadata) -> CheckpointAnnotations:
        return nearest_declared([chains.declared(metadata.controller), inputs.declared])

    kept.begin()
    pod_values = (
        read_pod(pod, gpus, partial(around, metadata), metadata, inputs.classes, rebooted=emptied, kept=kept)
        for pod, metadata in with_mates(pods, chains, gpus, rules, emptied)
    )
    return gangs_of(pod_values, chains, {name: inputs.declared}, rules, now, inputs.method)


def _by_namespace(items: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    spaces: dict[str, list[T]] = defaultdict(list)
    for name, item in items:
        spaces[name].append(item)
    return spaces
