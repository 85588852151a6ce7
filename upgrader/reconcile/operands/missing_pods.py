"""Missing pods of operands: represented as pods that are not ready, with the controller that should create them."""

from collections.abc import Callable, Iterable, Mapping

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.operands import NO_POD, Operand, OperandPod, PartPod
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests
from upgrader.stack.naming import keyed_name


def operand_pods(context: Context, read: StackReading, wanted: Mapping[Operand, frozenset[str]]) -> list[OperandPod]:
    """A pod that is not ready for each node that should have an operand and has no pod of it."""
    missing, nodes = [], {node.name: node for node in read.snapshot.nodes}
    there = {(pod.operand, pod.node) for pod in read.snapshot.operands}
    stack = read.stack.metadata.name
    for operand in Operand:
        lacking = [node for node in wanted.get(operand, ()) if (operand, node) not in there]
        for node, silence in _pod_silences(
            context, stack, operand.value, lacking, _maker_of_pod(stack, operand, nodes)
        ):
            missing.append(OperandPod(operand=operand, node=node, trouble=NO_POD, silence=silence))
    return missing


def part_pods(
    context: Context, stack: str, part: str, maker: str, wanted: Iterable[str], there: Iterable[str]
) -> list[PartPod]:
    """The same for a part other than the operands, whose pods are created by one DaemonSet, `maker`."""
    lacking = sorted(set(wanted) - set(there))
    silences = _pod_silences(context, stack, part, lacking, lambda _: maker)
    return [PartPod(node=node, trouble=NO_POD, silence=silence) for node, silence in silences]


def _pod_silences(
    context: Context, stack: str, part: str, nodes: Iterable[str], maker: Callable[[str], str]
) -> list[tuple[str, Silence]]:
    since = context.heard.nodes_without_pod(stack, part, nodes, context.clock.now())
    return [(node, Silence(since=at, maker=maker(node))) for node, at in since.items()]


def _maker_of_pod(stack: str, operand: Operand, nodes: Mapping[str, NodeFacts]) -> Callable[[str], str]:
    """The DaemonSet that a node's labels select, as a function of the node."""
    match operand:
        case Operand.DRIVER:
            return lambda node: keyed_name(operand, nodes[node].driver_key)
        case Operand.RUNTIME:
            return lambda node: keyed_name(operand, nodes[node].runtime_key)
        case Operand.DEVICE_PLUGIN:
            return lambda node: keyed_name(operand, nodes[node].plugin_key)
        case Operand.FEATURE_DISCOVERY | Operand.MONITORING:
            return lambda _: manifests.nondisruptive_name(stack, operand)
