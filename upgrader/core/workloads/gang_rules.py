"""Rules that assign pods to gangs, tried in order: the first that matches a pod names its gang, and the reason.

A rule reads one pod and its owners, never other pods, so that the order of pods does not matter.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import JOB, JOBSET, Work, sort_of

POD_GROUP = "pod-group"
"""Kind, in a gang's name, of groups that have only a name."""

ANNOTATION_WORKLOAD = "kueue.x-k8s.io/workload"
LABEL_KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
ANNOTATION_VOLCANO_GROUP = "scheduling.k8s.io/group-name"
LABEL_VOLCANO_JOB = "volcano.sh/job-name"
KAI_GROUP = "pod-group-name"  # an annotation
LABEL_COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
LABEL_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
LABEL_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
LABEL_KUBEFLOW_JOB = "training.kubeflow.org/job-name"
LABEL_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
LABEL_LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LABEL_LWS_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


class PodMetadata(Struct, frozen=True, kw_only=True):
    """The fields of a pod that determine its gang."""

    pod: str
    uid: str
    namespace: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    scheduling_group: str = ""  # spec.schedulingGroup.podGroupName
    controller: Owner | None = None


class Belonging(Struct, frozen=True, kw_only=True):
    """A gang by one rule: pods with the same key in a namespace belong together."""

    key: tuple[str, str]  # the criterion of the rule, and its value
    kind: str
    name: str
    because: str  # after "belong together: "


class MembershipRule(Struct, frozen=True, kw_only=True):
    """One row: `word` names it, `find` gives the gang of a pod, or None if the rule does not match the pod."""

    word: str
    find: Callable[[PodMetadata, Chains], Belonging | None]


class UserRule(Struct, frozen=True, kw_only=True):
    """A rule in a stack's spec: pods with the same value of a label, or with names that match in the same way."""

    label: str = ""
    regex: str = ""


def rules_of(own: Iterable[UserRule] = ()) -> tuple[MembershipRule, ...]:
    """All rules in order, those of the stack's spec first.

    Raises:
        ConfigurationError: a rule cannot be used.
    """
    return (*(_user_rule(rule) for rule in own), *RULES)


def resolve_gang(pod: PodMetadata, chains: Chains, rules: Iterable[MembershipRule]) -> Belonging:
    """The gang of a pod by the first rule that matches it; without a match, a gang of the pod alone."""
    for rule in rules:
        belonging = rule.find(pod, chains)
        if belonging is not None:
            return belonging
    return Belonging(key=("Alone", pod.uid), kind="Pod", name=pod.pod, because="it has no owner and names no group")


# ---- rules of the stack's spec


def _user_rule(rule: UserRule) -> MembershipRule:
    if bool(rule.label) == bool(rule.regex):
        raise ConfigurationError(
            "a rule of spec.gangs has neither or both of label and regex",
            resolution="Give each entry of spec.gangs exactly one of them.",
        )
    if rule.label:
        return MembershipRule(word="UserLabel", find=partial(_by_user_label, rule.label))
    try:
        pattern = re.compile(rule.regex)
    except re.error as error:
        raise ConfigurationError(
            f"regex {rule.regex!r} of spec.gangs cannot be used: {error}",
            resolution="Correct it: it must match a pod's whole name; its first group, if any, names the gang.",
        ) from error
    return MembershipRule(word="UserRegex", find=partial(_by_user_regex, pattern))


def _by_user_label(key: str, pod: PodMetadata, _: Chains) -> Belonging | None:
    value = pod.labels.get(key)
    if not value:
        return None
    named = f"{key}={value}"
    return Belonging(key=("UserLabel", named), kind="label", name=named, because=f"label {named} (a rule of the stack)")


def _by_user_regex(pattern: re.Pattern[str], pod: PodMetadata, _: Chains) -> Belonging | None:
    match = pattern.fullmatch(pod.pod)
    if match is None:
        return None
    value = (match.group(1) if pattern.groups else pattern.pattern) or ""
    return Belonging(
        key=("UserRegex", f"{pattern.pattern}\n{value}"),
        kind="name",
        name=value or pattern.pattern,
        because=f"names that match {pattern.pattern} as {value!r} (a rule of the stack)",
    )


# ---- groups by name


def _by_scheduling_group(pod: PodMetadata, _: Chains) -> Belonging | None:
    name = pod.scheduling_group
    return _named_group("PodGroup", name, f"schedulingGroup {name} (PodGroup)") if name else None


def _by_label(word: str, key: str, pod: PodMetadata, _: Chains) -> Belonging | None:
    value = pod.labels.get(key)
    return _named_group(key, value, f"label {key}={value} ({word})") if value else None


def _by_annotation(word: str, key: str, pod: PodMetadata, _: Chains) -> Belonging | None:
    value = untrusted.cut_name(pod.annotations.get(key, ""))  # unlike a label's, it may be of any length
    return _named_group(key, value, f"annotation {key}={value} ({word})") if value else None


def _named_group(criterion: str, value: str, because: str) -> Belonging:
    return Belonging(key=(criterion, value), kind=POD_GROUP, name=value, because=because)


# ---- owners


def _by_jobset(pod: PodMetadata, chains: Chains) -> Belonging | None:
    links = chains.owners_above(pod.controller)
    owner = next((link.owner for link in links if sort_of(link.owner) == JOBSET), None)
    uid = pod.labels.get(LABEL_JOBSET_UID) or (owner.uid if owner is not None else "")
    if not uid:
        return None
    work = chains.work(uid)
    name = owner.name if owner is not None else pod.labels.get(LABEL_JOBSET_NAME) or uid
    top = _topmost_owner(chains, work)
    above = f", under {top.kind} {top.name}" if top is not None and top.uid != uid else ""
    criterion = f"label {LABEL_JOBSET_UID}={uid}" if pod.labels.get(LABEL_JOBSET_UID) else "the same owner"
    return Belonging(
        key=("JobSet", uid),
        kind=top.kind if top is not None else "JobSet",
        name=top.name if top is not None else name,
        because=f"{criterion} (JobSet {work.owner.name if work is not None else name}{above})",
    )


def _topmost_owner(chains: Chains, work: Work | None) -> Owner | None:
    """The topmost owner of those that were read."""
    if work is None:
        return None
    return [link.owner for link in chains.owners_above(work.owner) if link.work is not None][-1]


def _by_kubeflow(pod: PodMetadata, chains: Chains) -> Belonging | None:
    name = pod.labels.get(LABEL_KUBEFLOW_JOB)
    if not name:
        return None
    kinds = [link.owner.kind for link in chains.owners_above(pod.controller) if link.owner.name == name]
    return Belonging(
        key=("Kubeflow", name),
        kind=kinds[-1] if kinds else "job-name",
        name=name,
        because=f"label {LABEL_KUBEFLOW_JOB}={name} (Kubeflow)",
    )


def _by_leader(pod: PodMetadata, _: Chains) -> Belonging | None:
    group, name = pod.labels.get(LABEL_LWS_GROUP), pod.labels.get(LABEL_LWS_NAME)
    if not group or not name:
        return None
    return Belonging(
        key=("LeaderWorkerSet", group),
        kind="LeaderWorkerSet",
        name=f"{name}-{pod.labels.get(LABEL_LWS_INDEX, group)}",
        because=f"label {LABEL_LWS_GROUP}={group} (LeaderWorkerSet {name})",
    )


def _by_job(pod: PodMetadata, chains: Chains) -> Belonging | None:
    owner = pod.controller
    if owner is None or sort_of(owner) != JOB:
        return None
    if any(link.work is not None and link.work.row is not None for link in chains.owners_above(owner)[1:]):
        return None  # it belongs to an owner that is stopped as a whole: all pods of that owner are its gang
    return _gang_of_owner("Job", owner, "the same owner")


def _by_top_owner(pod: PodMetadata, chains: Chains) -> Belonging | None:
    links = chains.owners_above(pod.controller)
    return _gang_of_owner("TopOwner", links[-1].owner, "the same topmost owner") if links else None


def _gang_of_owner(word: str, owner: Owner, what: str) -> Belonging:
    return Belonging(
        key=(word, owner.uid), kind=owner.kind, name=owner.name, because=f"{what} ({owner.kind} {owner.name})"
    )


RULES: tuple[MembershipRule, ...] = (
    MembershipRule(word="PodGroup", find=_by_scheduling_group),
    MembershipRule(word="Kueue", find=partial(_by_annotation, "Kueue", ANNOTATION_WORKLOAD)),
    MembershipRule(word="Kueue", find=partial(_by_label, "Kueue", LABEL_KUEUE_GROUP)),
    MembershipRule(word="Volcano", find=partial(_by_annotation, "Volcano", ANNOTATION_VOLCANO_GROUP)),
    MembershipRule(word="Volcano", find=partial(_by_label, "Volcano", LABEL_VOLCANO_JOB)),
    MembershipRule(word="KAI", find=partial(_by_annotation, "KAI", KAI_GROUP)),
    MembershipRule(word="coscheduling", find=partial(_by_label, "coscheduling", LABEL_COSCHEDULING_GROUP)),
    MembershipRule(word="JobSet", find=_by_jobset),
    MembershipRule(word="Kubeflow", find=_by_kubeflow),
    MembershipRule(word="LeaderWorkerSet", find=_by_leader),
    MembershipRule(word="Job", find=_by_job),
    MembershipRule(word="TopOwner", find=_by_top_owner),
)
"""The first match counts; a pod without a match is a gang alone."""
