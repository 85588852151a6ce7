"""A pod that surveys a node beside its jobs, for `upgrader doctor --node`. Pure."""

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.orders import SurveyScope
from upgrader.stack.naming import SURVEY
from upgrader.stack.node_pods.commands import HOST_NAMESPACES, host_command
from upgrader.stack.parts import TOLERATE_ALL, Manifest, host_path
from upgrader.stack.settings import StackSettings

DEADLINE_SECONDS = 120
"""Includes the pull of the node image."""


def survey_pod(node: str, run: str, scope: SurveyScope, settings: StackSettings) -> Manifest:
    """The pod; it requests no GPU and changes nothing.

    Args:
        node: name of the Node.
        run: name of this survey, so that two surveys at the same time have different pods.
        scope: what an upgrade would change.
        settings: settings of the stack.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(f"survey-{node}", run),
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: SURVEY},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": TOLERATE_ALL,
            "terminationGracePeriodSeconds": 1,
            "containers": [host_command(SURVEY, scope, settings)],
            "volumes": [host_path("host", "/")],
            **HOST_NAMESPACES,
        },
    }
