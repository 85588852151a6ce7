"""`record`: writes outputs of programs and files of the node to its log, for `upgrader first-node`; it only reads."""

import os
import sys
from collections.abc import Sequence

import msgspec

from upgrader.core.node_protocol.orders import NODE_VARIABLE, OrderResult, Reason, SurveyScope
from upgrader.core.node_protocol.recordings import RecordedOutput, RecordOrder
from upgrader.node.commands.order import run_order
from upgrader.node.driver.foreign_driver import MODULES
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.survey.recording import read_private_names, record_outputs
from upgrader.node.survey.surveyed_node import SurveyedNode

NAMES = "names"
"""The output with the private names; the report contains none of them."""


def main(arguments: Sequence[str]) -> int:
    """Print each output as a line of JSON, and then the result; returns the exit code."""
    return run_order("record", arguments, RecordOrder, _record_node)


def _record_node(order: RecordOrder) -> OrderResult:
    if order.vendor not in MODULES:
        raise OrderFailedError(Reason.BAD_ORDER, f"no outputs are known for vendor {order.vendor}")
    node = SurveyedNode(SurveyScope(vendor=order.vendor), Host(), SystemPrograms(), os.environ.get(NODE_VARIABLE, ""))
    names = RecordedOutput(name=NAMES, source="names to replace", text="\n".join(read_private_names(node)))
    outputs = (names, *record_outputs(node))
    sys.stdout.writelines(msgspec.json.encode(output).decode() + "\n" for output in outputs)
    return OrderResult(reason=Reason.DONE, message=f"{len(outputs) - 1} outputs recorded")
