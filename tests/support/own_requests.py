"""CheckpointRequests as their plan makes them: by name, label and owner."""

from typing import Any

from upgrader.api import names
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, request_name


def own(body: dict[str, Any], uid: str, batch: int = 1) -> dict[str, Any]:
    """A request's manifest, made by the plan that it names; `uid` is that plan's."""
    plan, gang = body["spec"]["plan"], body["spec"]["gang"]
    owner = {"apiVersion": "gpu-upgrader.io/v1alpha1", "kind": "UpgradePlan", "name": plan, "uid": uid}
    meta = {
        "name": request_name(plan, batch, gang),
        "namespace": gang.partition("/")[0],
        "labels": {names.LABEL_PLAN: plan, LABEL_BATCH: str(batch), names.LABEL_GROUP: body["spec"]["group"]},
        "ownerReferences": [owner | {"controller": True}],
    }
    return body | {"metadata": body["metadata"] | meta}
