"""DaemonSets of non-disruptive operands: a restart does not interrupt jobs, so they roll without a plan. Pure.

Their pods run on nodes on which operands are on.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.api import names
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core import untrusted
from upgrader.core.model.operands import COMPONENT_OF, Operand, PluginSettings
from upgrader.core.naming import object_name
from upgrader.stack.operands.containers import EarlierOperand, operand_container, program_volumes, wait_container
from upgrader.stack.parts import TOLERATE_ALL, Manifest, with_manifest_hash
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors import OperandProgram, find_vendor


class NondisruptiveOperand(Struct, frozen=True, kw_only=True):
    """A non-disruptive operand of a stack; `named` is the image as in the stack, `image` the same image by digest."""

    operand: Operand
    named: str
    image: str
    max_unavailable: str
    plugin: PluginSettings
    before: tuple[EarlierOperand, ...] = ()


def nondisruptive_name(stack: str, operand: Operand) -> str:
    """Name of the DaemonSet; a stack that is created again under its name has the same one."""
    return object_name(f"{COMPONENT_OF[operand]}-{stack}", stack)


def nondisruptive_daemonset(stack: GpuStack, spec: NondisruptiveOperand, settings: StackSettings) -> Manifest:
    """The DaemonSet of a non-disruptive operand.

    It has no owner reference: the controller deletes operands in order.
    """
    program = find_vendor(spec.plugin.vendor).nondisruptive[spec.operand](spec.plugin)
    component = COMPONENT_OF[spec.operand]
    labels = {names.LABEL_COMPONENT: component, names.LABEL_STACK: stack.metadata.name}
    nodes = untrusted.parse_whole(spec.max_unavailable)
    limit = {"maxUnavailable": spec.max_unavailable if nodes is None else nodes}
    return with_manifest_hash(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": nondisruptive_name(stack.metadata.name, spec.operand),
                "namespace": settings.namespace,
                "labels": labels,
                "annotations": {names.ANNOTATION_READABLE: spec.named},
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": limit},
                "template": {
                    "metadata": {"labels": labels, "annotations": {names.ANNOTATION_READABLE: spec.named}},
                    "spec": {
                        **({"hostPID": True} if program.host_pid else {}),
                        "nodeSelector": {**stack.spec.node_selector, names.LABEL_OPERANDS: names.ON},
                        "serviceAccountName": settings.service_account,
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        "tolerations": TOLERATE_ALL,
                        "priorityClassName": settings.priority_class,
                        "terminationGracePeriodSeconds": 5,
                        "initContainers": [
                            *_wait_containers(spec.before, settings),
                            *_report_container(spec.image, program),
                        ],
                        "containers": [operand_container(component, spec.image, program)],
                        "volumes": program_volumes(program, spec.before),
                    },
                },
            },
        }
    )


def _report_container(image: str, program: OperandProgram) -> list[Manifest]:
    if not program.report_command:
        return []
    return [
        operand_container(
            "read", image, msgspec.structs.replace(program, command=program.report_command, port=0, probe=())
        )
    ]


def _wait_containers(earlier: Sequence[EarlierOperand], settings: StackSettings) -> list[Manifest]:
    return [wait_container(operand, settings) for operand in earlier]
