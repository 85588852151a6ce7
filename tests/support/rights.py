"""What deploy/ gives the controller."""

from collections.abc import Iterator

import yaml

from tests.support.repository import ROOT
from upgrader_dev.simulated.apiserver.cluster import Use

JOBS_IN = "default"
"""Namespace of jobs."""


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def granted() -> Iterator[tuple[str, Use]]:
    """Every right as (namespace it holds in or * for all, verb/group/resource)."""
    roles = {(doc["kind"], doc["metadata"]["name"]): doc["rules"] for doc in documents("rbac.yaml") if "rules" in doc}
    bindings = [doc for doc in documents("rbac.yaml") + documents("job-namespace.yaml") if "roleRef" in doc]
    for binding in bindings:
        namespace = binding["metadata"].get("namespace", "*").replace("NAMESPACE", JOBS_IN)
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield namespace, Use(verb, group, resource)


def covers(namespace: str, right: Use, use: Use) -> bool:
    return namespace in ("*", use.namespace) and (right.verb, right.group, right.resource) == (
        use.verb,
        use.group,
        use.resource,
    )
