"""Fields of pods, Jobs and PodDisruptionBudgets that only `upgrader doctor --jobs` reads.

They are separate types, so that the controller does not decode the whole environment of all pods in each step.
"""

from typing import Any, TypeVar

from upgrader.api import kubernetes as k
from upgrader.api import resources as r
from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import ResourceKind

T = TypeVar("T")


class Variable(Wire, frozen=True, kw_only=True):
    """The value is empty if it comes from another source: secrets are never read."""

    name: str
    value: str = ""


class MemberContainer(Wire, frozen=True, kw_only=True):
    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()


class MemberSpec(Wire, frozen=True, kw_only=True):
    containers: tuple[MemberContainer, ...] = ()
    termination_grace_period_seconds: int | None = None
    restart_policy: str = "Always"


class MemberPod(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: MemberSpec = MemberSpec()


class ExitCodes(Wire, frozen=True, kw_only=True):
    operator: str = ""
    values: tuple[int, ...] = ()


class OnCondition(Wire, frozen=True, kw_only=True):
    type: str
    status: str = "True"


class PolicyRule(Wire, frozen=True, kw_only=True):
    action: str
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[OnCondition, ...] | None = None


class FailurePolicy(Wire, frozen=True, kw_only=True):
    rules: tuple[PolicyRule, ...] = ()


class JobPolicySpec(Wire, frozen=True, kw_only=True):
    backoff_limit: int = 6
    pod_failure_policy: FailurePolicy | None = None


class JobPolicy(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: JobPolicySpec = JobPolicySpec()


class BudgetSpec(k.PodDisruptionBudgetSpec, frozen=True, kw_only=True):
    max_unavailable: int | str | None = None
    min_available: int | str | None = None


class BudgetStatus(k.PodDisruptionBudgetStatus, frozen=True, kw_only=True):
    expected_pods: int | None = None
    conditions: tuple[k.Condition, ...] = ()


class Budget(k.PodDisruptionBudget, frozen=True, kw_only=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def _extend_kind(base: ResourceKind[Any], type_: type[T]) -> ResourceKind[T]:
    facts = {name: getattr(base, name) for name in ("group", "version", "kind", "plural", "namespaced")}
    return ResourceKind(**facts, type=type_)


MEMBER_PODS = _extend_kind(r.PODS, MemberPod)
JOB_POLICIES = _extend_kind(r.JOBS, JobPolicy)
BUDGETS = _extend_kind(r.PDBS, Budget)
