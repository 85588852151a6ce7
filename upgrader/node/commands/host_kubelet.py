"""The kubelet of the node, by the path in the order."""

import os

from upgrader.core.node_protocol.orders import NODE_VARIABLE, KubeletSettings, KubeletTarget, Reason
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.kubelet import HostKubelet


def host_kubelet(host: Host, target: KubeletTarget | KubeletSettings | None) -> HostKubelet:
    """The kubelet of this pod's node.

    Raises:
        OrderFailedError: BAD_ORDER, if the order contains the kubelet and the environment not the name of the node.
    """
    node = os.environ.get(NODE_VARIABLE, "")
    if target is not None and not node:
        raise OrderFailedError(
            Reason.BAD_ORDER, f"{NODE_VARIABLE} is not set; it must contain spec.nodeName of the pod"
        )
    return HostKubelet(host, binary=target.binary if target else "", node=node, programs=SystemPrograms())
