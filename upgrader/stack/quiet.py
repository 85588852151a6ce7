"""DaemonSets of quiet operands, which roll without plans, a few nodes at a time, where the operands are on. Pure."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.api import names
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core import untrusted
from upgrader.core.model.operands import COMPONENT_OF, Operand, PluginSettings
from upgrader.core.naming import object_name
from upgrader.stack.containers import Before, container, volumes, waits_for
from upgrader.stack.parts import EVERYWHERE, Manifest, marked
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors import VENDORS, Program


class QuietOperand(Struct, frozen=True, kw_only=True):
    """A quiet operand of a stack; `named` is the image as in the stack, `image` the same image by digest."""

    operand: Operand
    named: str
    image: str
    max_unavailable: str
    plugin: PluginSettings
    before: tuple[Before, ...] = ()


def quiet_name(stack: str, operand: Operand) -> str:
    """Name of the DaemonSet; a stack that is created again under its name has the same one."""
    return object_name(f"{COMPONENT_OF[operand]}-{stack}", stack)


def quiet_daemonset(stack: GpuStack, one: QuietOperand, settings: StackSettings) -> Manifest:
    """The DaemonSet of a quiet operand. It has no owner reference: the controller deletes operands in order."""
    program = VENDORS[one.plugin.vendor].quiet[one.operand](one.plugin)
    component = COMPONENT_OF[one.operand]
    labels = {names.LABEL_COMPONENT: component, names.LABEL_STACK: stack.metadata.name}
    nodes = untrusted.whole(one.max_unavailable)
    limit = {"maxUnavailable": one.max_unavailable if nodes is None else nodes}
    return marked(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": quiet_name(stack.metadata.name, one.operand),
                "namespace": settings.namespace,
                "labels": labels,
                "annotations": {names.ANNOTATION_READABLE: one.named},
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": limit},
                "template": {
                    "metadata": {"labels": labels, "annotations": {names.ANNOTATION_READABLE: one.named}},
                    "spec": {
                        **({"hostPID": True} if program.host_pid else {}),
                        "nodeSelector": {**stack.spec.node_selector, names.LABEL_OPERANDS: names.ON},
                        "serviceAccountName": settings.service_account,
                        "automountServiceAccountToken": False,
                        "enableServiceLinks": False,
                        "tolerations": EVERYWHERE,
                        "priorityClassName": settings.priority_class,
                        "terminationGracePeriodSeconds": 5,
                        "initContainers": [
                            *_waiting_containers(one.before, settings),
                            *_reading_container(one.image, program),
                        ],
                        "containers": [container(component, one.image, program)],
                        "volumes": volumes(program, one.before),
                    },
                },
            },
        }
    )


def _reading_container(image: str, program: Program) -> list[Manifest]:
    if not program.reads:
        return []
    return [container("read", image, msgspec.structs.replace(program, command=program.reads, port=0, probe=()))]


def _waiting_containers(before: Sequence[Before], settings: StackSettings) -> list[Manifest]:
    return [waits_for(one, settings) for one in before]
