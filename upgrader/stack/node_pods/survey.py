"""Pods that read a node beside its jobs, for `upgrader doctor --node` and `upgrader first-node`. Pure."""

import msgspec

from upgrader.api import names
from upgrader.core.naming import object_name
from upgrader.core.node_protocol.orders import SurveyScope
from upgrader.core.node_protocol.recordings import RecordOrder
from upgrader.stack.naming import RECORD, SURVEY
from upgrader.stack.node_pods.commands import HOST_NAMESPACES, host_command
from upgrader.stack.parts import TOLERATE_ALL, Manifest, host_path
from upgrader.stack.settings import StackSettings

DEADLINE_SECONDS = 120
"""Includes the pull of the node image."""
RECORD_DEADLINE_SECONDS = 420
"""The same for recorded outputs: nvidia-smi runs three times, and each may take two minutes."""


def survey_pod(node: str, run: str, scope: SurveyScope, settings: StackSettings) -> Manifest:
    """The pod that surveys a node; it requests no GPU and changes nothing.

    Args:
        node: name of the Node.
        run: name of this survey, so that two surveys at the same time have different pods.
        scope: what an upgrade would change.
        settings: settings of the stack.
    """
    return _reading_pod(SURVEY, node, run, scope, settings, DEADLINE_SECONDS)


def record_pod(node: str, run: str, order: RecordOrder, settings: StackSettings) -> Manifest:
    """The pod that records outputs of a node, as `survey_pod`."""
    return _reading_pod(RECORD, node, run, order, settings, RECORD_DEADLINE_SECONDS)


def _reading_pod(
    component: str, node: str, run: str, order: msgspec.Struct, settings: StackSettings, seconds: int
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": object_name(f"{component}-{node}", run),
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: component},
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": TOLERATE_ALL,
            "terminationGracePeriodSeconds": 1,
            "containers": [host_command(component, order, settings)],
            "volumes": [host_path("host", "/")],
            **HOST_NAMESPACES,
        },
    }
