"""A pool that a stack looks after without a plan: what goes wrong there, and how it looks from outside."""

from collections.abc import Sequence

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, JOBS, NODE_UPGRADES, NODES, PODS
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig


async def pool(rig: Rig, *, nodes: int = 1, images: Sequence[str] = ("1.0",)) -> str:
    """Nodes on driver 1.0, with images of these drivers."""
    for number in range(nodes):
        rig.fleet.add_node(f"gpu-{number}")
    for version in images:
        rig.put_image(version)
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    return revision


def full_disk(which: str, _: Object) -> OrderResult | None:
    return OrderResult(reason=Reason.DISK_FULL, message="the disk is full") if which == "prepare" else None


def invalid(which: str, _: Object) -> OrderResult | None:
    return OrderResult(reason=Reason.DEVICE_FAILED, message="GPU 3 is gone") if which == "validate" else None


def well(_component: str, _pod: Object) -> OrderResult | None:
    return None


def installed(rig: Rig) -> tuple[str, str, str]:
    found = next(one for one in rig.stack_now().status.conditions if one.type == "Installed")
    return found.status, found.reason, found.message


def seen(rig: Rig) -> list[tuple[str, str, int, str, str]]:
    return [
        (one.spec.node.name, one.spec.reason.value, one.spec.attempt, one.status.phase.value, one.status.reason)
        for one in rig.upgrades()
    ]


def finalizers(rig: Rig) -> list[str]:
    return rig.stack_now().metadata.finalizers


def labels_of(rig: Rig, name: str) -> Object:
    labels: Object = rig.cluster.store.find(NODES, name)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith(f"{names.GROUP}/")}


def in_phase(rig: Rig, phase: NodePhase, plan: str | None = None) -> bool:
    return any(one.status.phase is phase for one in rig.upgrades(plan))


def remove_upgrades(rig: Rig, plan: str | None = None) -> None:
    """A person takes the NodeUpgrades that are under way, finalizers or not; the garbage collector takes their pods."""
    for one in rig.upgrades(plan):
        if one.status.phase is not NodePhase.SUCCEEDED:
            rig.cluster.store.remove(NODE_UPGRADES, one.metadata.name)
    for kind in (JOBS, PODS):
        for each in list(rig.cluster.store.copy_all(kind)):
            if each["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) in {"prepare", "upgrade", "validate"}:
                rig.cluster.store.remove(kind, each["metadata"]["name"], each["metadata"]["namespace"])


def claimed(rig: Rig) -> bool:
    return any(names.ANNOTATION_CLAIMED_BY in node["metadata"].get("annotations", {}) for node in rig.nodes())


async def on_nvidia(rig: Rig, spec: Object, *nodes: str) -> None:
    """Nodes on NVIDIA's driver 535.1, installed by a stack."""
    for name in nodes:
        rig.fleet.add_node(name)
    rig.put_image("535.1")
    for one in rig.list_objects(DRIVER_IMAGES, DriverImage):
        rig.cluster.store.change(DRIVER_IMAGES, one.metadata.name, {"spec": {"vendor": "nvidia"}})
    rig.apply_stack(spec)
    await rig.settle()
