"""A Job that looks at the GPUs of one node before work is put there, as a batch system's prologue runs it. Pure."""

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.orders import ValidateDriverOrder
from upgrader.stack.naming import PREFLIGHT
from upgrader.stack.parts import EVERYWHERE, Manifest
from upgrader.stack.settings import StackSettings
from upgrader.stack.validation import driver_check, driver_check_volumes

SECONDS = 300
"""A node that does not answer in this time is not well either; the Job's condition says DeadlineExceeded."""

KEPT_SECONDS = 3600


def preflight_job(node: str, run: str, order: ValidateDriverOrder, settings: StackSettings) -> Manifest:
    """Looks at all devices of a node and takes none, so it runs beside jobs; it ends with the code of what is wrong.

    Args:
        node: name of the Node.
        run: what the batch system calls this look, so that the same one is not made twice.
        order: what should be there.
        settings: of everything on nodes.
    """
    labels = {names.LABEL_COMPONENT: PREFLIGHT}
    pod = {
        "nodeName": node,
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": EVERYWHERE,
        "terminationGracePeriodSeconds": 1,
        "containers": [driver_check(order, settings, name=PREFLIGHT)],
        "volumes": driver_check_volumes(),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": object_name(f"preflight-{node}", run),
            "namespace": settings.namespace,
            "labels": labels,
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
