"""The annotations by which pods are requested to write a checkpoint: their request, and the patch that removes
them.
"""

from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import timing
from upgrader.core.checkpoint_request.acknowledgements import is_earlier_request


def carries_request(request: CheckpointRequest, pod: Pod) -> bool:
    """Whether the request annotation of a pod belongs to this request, with its current ID or an earlier one.

    A controller that requests again may end before it annotates a pod with the new ID. IDs are Unix times in seconds,
    or greater, so the IDs of a request are not below the time of its creation.
    """
    value, made = pod.metadata.annotations.get(names.ANNOTATION_REQUEST, ""), request.metadata.creation_timestamp
    first = int(timing.parse_time(made).timestamp()) if made else request.spec.request_id
    return value == str(request.spec.request_id) or (
        is_earlier_request(value, request.spec.request_id) and not is_earlier_request(value, first)
    )


def clear_annotations(pod: Pod) -> list[dict[str, Any]]:
    """JSON patch that removes the request annotations if they are unchanged since they were read."""
    keys = [key for key in (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS) if key in pod.metadata.annotations]
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {
            "op": "test",
            "path": annotation_pointer(names.ANNOTATION_REQUEST),
            "value": pod.metadata.annotations[names.ANNOTATION_REQUEST],
        },
        *({"op": "remove", "path": annotation_pointer(key)} for key in keys),
    ]


def annotation_pointer(annotation: str) -> str:
    """JSON pointer to an annotation."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"
