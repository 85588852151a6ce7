"""Rules of schedulers and controllers: the owner of a pod, and the nodes that fit it."""

from upgrader.api import names
from upgrader_dev.simulated.apiserver.objects import Object

RESOURCE = "nvidia.com/gpu"
PARTITION = "nvidia.com/mig-1g.10gb"


def trainer_spec(gpus: int, resource: str = RESOURCE) -> Object:
    return {
        "containers": [
            {
                "name": "train",
                "image": "trainer",
                "resources": {"limits": {resource: str(gpus)}, "requests": {resource: str(gpus)}},
                "volumeMounts": [
                    {"name": "upgrader", "mountPath": "/etc/gpu-upgrader"},
                    {"name": "answers", "mountPath": "/run/checkpoint"},
                    {"name": "data", "mountPath": "/data"},
                ],
            }
        ],
        "volumes": [
            {
                "name": "upgrader",
                "downwardAPI": {
                    "items": [
                        {
                            "path": "checkpoint-request",
                            "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_REQUEST}']"},
                        },
                        {
                            "path": "park-seconds",
                            "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_PARK_SECONDS}']"},
                        },
                    ]
                },
            },
            {"name": "answers", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    }


def gpus_of(pod: Object, resources: tuple[str, ...] = (RESOURCE, PARTITION)) -> int:
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"].get("containers", [])]
    return sum(int(limit.get(name, 0)) for limit in limits for name in resources)


def has_owner(pod: Object, kind: str) -> bool:
    return any(reference["kind"] == kind for reference in pod["metadata"].get("ownerReferences") or [])


def is_of_operator(job: Object) -> bool:
    return names.LABEL_COMPONENT in job["metadata"].get("labels", {})


def is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def is_tolerated(pod: Object, node: Object) -> bool:
    for taint in node["spec"].get("taints", []):
        if taint.get("effect") != "PreferNoSchedule" and not any(
            covers_taint(toleration, taint) for toleration in pod["spec"].get("tolerations", [])
        ):
            return False
    return not node["spec"].get("unschedulable", False)


def is_avoided(node: Object) -> bool:
    """Whether a scheduler prefers other nodes."""
    return any(taint.get("effect") == "PreferNoSchedule" for taint in node["spec"].get("taints", []))


def covers_taint(toleration: Object, taint: Object) -> bool:
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def fits_node(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in pod["spec"].get("nodeSelector", {}).items()):
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return not terms or any(matches_term(term, labels) for term in terms)


def matches_term(term: Object, labels: dict[str, str]) -> bool:
    for expression in term.get("matchExpressions", []):
        value, values = labels.get(expression["key"]), expression.get("values", [])
        match expression["operator"]:
            case "In":
                matches = value in values
            case "NotIn":
                matches = value not in values
            case "Exists":
                matches = value is not None
            case "DoesNotExist":
                matches = value is None
            case _:
                raise AssertionError(f"operator {expression['operator']} is not simulated")
        if not matches:
            return False
    return True
