"""PodDisruptionBudgets, checked before a gang is stopped: a suspended Job would bypass them (policy/v1 semantics)."""

from collections.abc import Iterable

from msgspec import Struct

from upgrader.core.model.fleet import Gang


class Requirement(Struct, frozen=True, kw_only=True):
    """One matchExpression."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Struct, frozen=True, kw_only=True):
    """A label selector; an empty selector selects all pods, a missing one (None) selects none."""

    labels: dict[str, str] = {}
    requirements: tuple[Requirement, ...] = ()


class DisruptionBudget(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget; `allowed` is the number of pods that may be disrupted now."""

    name: str
    namespace: str
    selector: Selector | None
    allowed: int


def is_selected(selector: Selector | None, labels: dict[str, str]) -> bool:
    """Whether a selector selects a pod; an unknown operator selects it, so that doubt blocks."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.labels.items()):
        return False
    return all(_is_fulfilled(requirement, labels) for requirement in selector.requirements)


def _is_fulfilled(requirement: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True


def blocked_gangs(gangs: Iterable[Gang], budgets: Iterable[DisruptionBudget]) -> dict[str, str]:
    """Gang name to the name of a budget that does not allow its disruption now.

    A gang is stopped whole, so that a budget must allow all its members that it selects; for replicated pods, which are
    evicted one by one, one is enough. A pod under two budgets can never be evicted (the API server refuses); if it
    would be evicted (replicated, or bare and expendable), it counts as blocked.
    """
    by_namespace: dict[str, list[DisruptionBudget]] = {}
    for budget in sorted(budgets, key=lambda budget: (budget.namespace, budget.name)):
        by_namespace.setdefault(budget.namespace, []).append(budget)
    blocking = {}
    for gang in gangs:
        name = _blocking_budget(gang, by_namespace.get(gang.namespace, []))
        if name:
            blocking[gang.name] = name
    return blocking


def _blocking_budget(gang: Gang, budgets: list[DisruptionBudget]) -> str:
    covered = {
        budget.name: [member.uid for member in gang.members if is_selected(budget.selector, member.labels)]
        for budget in budgets
    }
    for budget in budgets:
        count = len(covered[budget.name])
        if count and budget.allowed < (1 if gang.replicated else count):
            return budget.name
    if not (gang.replicated or gang.bare):
        return ""
    for member in gang.members:
        over = [name for name, uids in covered.items() if member.uid in uids]
        if len(over) > 1:
            return f"{over[0]} together with {over[1]}"
    return ""
