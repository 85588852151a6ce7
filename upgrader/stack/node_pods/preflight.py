"""A Job that checks the GPUs of one node before a job starts there, for the prologue of a batch system. Pure."""

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.orders import ValidateDriverOrder
from upgrader.stack.naming import PREFLIGHT
from upgrader.stack.node_pods.validation import driver_check, driver_check_volumes
from upgrader.stack.parts import TOLERATE_ALL, Manifest
from upgrader.stack.settings import StackSettings

DEADLINE_SECONDS = 300
"""A node without a result in this time counts as failed; the Job then has the reason DeadlineExceeded."""

TTL_SECONDS = 3600


def preflight_job(node: str, run: str, order: ValidateDriverOrder, settings: StackSettings) -> Manifest:
    """The Job that checks all devices of a node and requests none, so that it runs beside jobs.

    Args:
        node: name of the Node.
        run: name of the check, so that the same Job is not created twice.
        order: expected state of the node.
        settings: settings of the stack.
    """
    labels = {names.LABEL_COMPONENT: PREFLIGHT}
    pod = {
        "nodeName": node,
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": TOLERATE_ALL,
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
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
