"""What schedulers and controllers go by: whose a pod is, and where it fits."""

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
    limits = [one.get("resources", {}).get("limits", {}) for one in pod["spec"].get("containers", [])]
    return sum(int(one.get(name, 0)) for one in limits for name in resources)


def has_owner(pod: Object, kind: str) -> bool:
    return any(one["kind"] == kind for one in pod["metadata"].get("ownerReferences") or [])


def is_ours(job: Object) -> bool:
    return names.LABEL_COMPONENT in job["metadata"].get("labels", {})


def is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def is_tolerated(pod: Object, node: Object) -> bool:
    for taint in node["spec"].get("taints", []):
        if taint.get("effect") != "PreferNoSchedule" and not any(
            covers_taint(one, taint) for one in pod["spec"].get("tolerations", [])
        ):
            return False
    return not node["spec"].get("unschedulable", False)


def is_shunned(node: Object) -> bool:
    """Whether a scheduler takes another node first."""
    return any(one.get("effect") == "PreferNoSchedule" for one in node["spec"].get("taints", []))


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
    for one in term.get("matchExpressions", []):
        value, values = labels.get(one["key"]), one.get("values", [])
        match one["operator"]:
            case "In":
                good = value in values
            case "NotIn":
                good = value not in values
            case "Exists":
                good = value is not None
            case "DoesNotExist":
                good = value is None
            case _:
                raise AssertionError(f"operator {one['operator']} is not played")
        if not good:
            return False
    return True
