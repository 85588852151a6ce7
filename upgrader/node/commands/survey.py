"""`survey`: reports what on the node would make an upgrade fail, or differ from what is expected; it only reads."""

import os
import sys
import time
from collections.abc import Sequence

import msgspec

from upgrader.core.node_protocol.orders import NODE_VARIABLE, OrderResult, Reason, SurveyScope
from upgrader.node.commands.order import run_order
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.survey.node_survey import survey_node
from upgrader.node.survey.surveyed_node import SurveyedNode


def main(arguments: Sequence[str]) -> int:
    """Print the report as a line of JSON, and then the result; returns the exit code."""
    return run_order("survey", arguments, SurveyScope, _survey_node)


def _survey_node(scope: SurveyScope) -> OrderResult:
    begin = time.monotonic()
    report = survey_node(SurveyedNode(scope, Host(), SystemPrograms(), os.environ.get(NODE_VARIABLE, "")))
    report = msgspec.structs.replace(report, seconds=round(time.monotonic() - begin, 3))
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    problems, warnings = len(report.problems), len(report.warnings)
    return OrderResult(
        reason=Reason.UNSUITABLE if problems else Reason.DONE,
        message=f"{problems} problem(s) and {warnings} warning(s); the log contains all findings",
        seconds=report.seconds,
        facts=report.facts,
    )
