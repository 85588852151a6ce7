"""The supervisor of the kubelet, which the swap of the kubelet needs; and arguments that a new kubelet rejects."""

import re
from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.errors import ProcessError
from upgrader.node.host.control_groups import read_owner
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.survey.surveyed_node import SurveyedNode, make_handled, make_problem, make_warning

SYSTEMCTL_SECONDS = 10.0
PROPERTIES = ("Restart", "RestartUSec", "StartLimitBurst", "StartLimitIntervalUSec")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|min|h|d|w|month|y)")
_SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "min": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "month": 2629800,
    "y": 31557600,
}


def check_kubelet_unit(node: SurveyedNode) -> Iterator[Advice]:
    """A kubelet that ends must be started again: the new one after the swap, the previous one if the new one fails.

    The upgrade restarts a unit itself, whatever its settings are. Another supervisor must do it.
    """
    if node.kubelet is None or not (node.host.root / "run/systemd/system").is_dir():
        return
    unit = read_owner(node.host.proc / str(node.kubelet.pid)).unit
    if not unit:
        yield make_warning(
            SurveyCheck.KUBELET_UNIT,
            "kubelet",
            f"process {node.kubelet.pid} is in no systemd unit: whether it is restarted after its end is unknown",
            "Run it as a service with Restart=always.",
        )
        return
    properties = _read_properties(node, unit)
    restart = properties.get("Restart", "no")
    if restart != "always":
        yield make_handled(
            SurveyCheck.KUBELET_UNIT,
            unit,
            f"Restart={restart}: systemd does not start the kubelet after every exit; the upgrade restarts the unit",
        )
    elif _reaches_start_limit(properties):
        yield make_handled(
            SurveyCheck.KUBELET_UNIT,
            unit,
            f"it is started at most {properties['StartLimitBurst']} times in {properties['StartLimitIntervalUSec']}, "
            f"each {properties.get('RestartUSec', '?')} after an exit; the upgrade resets this limit",
        )


def check_kubelet_arguments(node: SurveyedNode) -> Iterator[Advice]:
    """Arguments of the running kubelet that the new one rejects. A kubelet parses all before it prints its version."""
    target = node.scope.kubelet
    if target is None or node.kubelet is None:
        return
    fault = _argument_fault(node, node.kubelet, target.version)
    if fault:
        yield make_problem(
            SurveyCheck.KUBELET_ARGUMENTS,
            f"kubelet {target.version}",
            f"it rejects the arguments of the running kubelet: {fault}",
            "Remove the argument from the unit of the kubelet, or set it in its configuration file.",
        )


def _argument_fault(node: SurveyedNode, kubelet: RunningKubelet, version: str) -> str:
    binary = node.host.state / "kubelet" / version / "kubelet"
    if not binary.is_file():
        return ""  # the prepare step reports a kubelet that was not fetched
    ended = node.programs.run([str(binary), *kubelet.arguments, "--version"], seconds=SYSTEMCTL_SECONDS * 3)
    return "" if ended.code == 0 else ended.one_line[-300:]


def _read_properties(node: SurveyedNode, unit: str) -> dict[str, str]:
    """Properties of a unit, from the node's own systemctl.

    Raises:
        ProcessError: it cannot be run, or failed.
    """
    words = ["nsenter", "-t", "1", "-m", "systemctl", "show", unit, *(f"--property={name}" for name in PROPERTIES)]
    ended = node.programs.run(words, seconds=SYSTEMCTL_SECONDS)
    if ended.code != 0:
        raise ProcessError(f"systemctl show {unit} ended with exit code {ended.code}", details=ended.one_line)
    lines = (line.partition("=") for line in ended.output.splitlines())
    return {name: value for name, _, value in lines if name in PROPERTIES}


def _reaches_start_limit(properties: dict[str, str]) -> bool:
    """Whether a service that ends at once at each start is not started any more (systemd.unit(5), StartLimitBurst)."""
    burst, interval = properties.get("StartLimitBurst", "0"), parse_span(properties.get("StartLimitIntervalUSec", ""))
    if not burst.isdecimal() or int(burst) == 0 or interval == 0:
        return False
    return parse_span(properties.get("RestartUSec", "")) * int(burst) <= interval


def parse_span(text: str) -> float:
    """Seconds of a time span of systemd, such as `1min 30s`; infinite for `infinity`, and 0 without a number."""
    if text == "infinity":
        return float("inf")
    return sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(text))
