"""`prepare`: checks that the node has everything that the upgrade requires."""

import os
from collections.abc import Sequence

from upgrader.core.node_protocol.orders import NODE_VARIABLE, OrderResult, PrepareOrder
from upgrader.node.commands.host_kubelet import host_kubelet
from upgrader.node.commands.order import run_order
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.survey.node_survey import survey_node
from upgrader.node.survey.surveyed_node import SurveyedNode
from upgrader.node.upgrade.prepare import prepare_node


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("prepare", arguments, PrepareOrder, _prepare_node)


def _prepare_node(order: PrepareOrder) -> OrderResult:
    host = Host()
    return prepare_node(
        order,
        host=host,
        kubelet=host_kubelet(host, order.kubelet or order.settings),
        survey=lambda scope: survey_node(
            SurveyedNode(scope, host, SystemPrograms(), os.environ.get(NODE_VARIABLE, ""))
        ),
    )
