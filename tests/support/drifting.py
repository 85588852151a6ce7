"""A pool whose nodes drift: another revision of the stack, another kernel after a reboot, labels that go to and fro."""

from typing import Any

from upgrader.api.resources import DRIVER_IMAGES, NODES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import DriverImage, UpgradePlan
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.driver_image.image_names import image_name
from upgrader.stack.settings import BuildSettings
from upgrader_dev.simulated.cluster.rig import Rig

KERNEL, NEXT = "6.1.0-47-amd64", "6.1.0-50-amd64"
REPOSITORY = "registry/drivers"


def made_by_recipe(rig: Rig, version: str, kernel: str = KERNEL) -> None:
    """A DriverImage that is found in the registry by its identity."""
    rig.builds = BuildSettings(repository=REPOSITORY)
    built(rig, version, kernel)
    spec = {"vendor": "sim", "version": version, "kernel": kernel, "recipe": "sim", "os": "bookworm"}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": f"made-{version}-{kernel}"}, "spec": spec})


async def on_recipes_driver() -> Rig:
    """One node in service on driver 1.0, made by a recipe."""
    made = Rig()
    made.fleet.add_node("gpu-0")
    made_by_recipe(made, "1.0")
    made.apply_stack(made.make_spec("1.0"))
    await made.settle()
    return made


def built(rig: Rig, version: str, kernel: str) -> None:
    """Somebody has built it: it is in the registry under its name."""
    identity = Identity(vendor="sim", recipe="sim", driver=version, kernel=kernel, os="bookworm")
    rig.registry.push(image_name(REPOSITORY, identity), f"{version.replace('.', '')}{kernel.encode().hex()[-8:]}")


def images_of(rig: Rig, kernel: str) -> list[tuple[str, str, str]]:
    """Version, recipe and phase of each DriverImage for a kernel."""
    found = (one for one in rig.list_objects(DRIVER_IMAGES, DriverImage) if one.spec.kernel == kernel)
    return sorted((one.spec.version, one.spec.recipe or "", one.status.phase.value) for one in found)


def reboots(rig: Rig, name: str, *, boot: str, kernel: str = NEXT) -> None:
    """The Node after a reboot, as its kubelet writes it."""
    rig.cluster.store.change(NODES, name, {"status": {"nodeInfo": {"kernelVersion": kernel, "bootID": boot}}})


def asks(rig: Rig, spec: dict[str, Any], mode: str, **plan: Any) -> str:
    """The stack with what it does about drift."""
    return rig.apply_stack(spec | {"onDrift": mode} | ({"driftPlan": plan} if plan else {}))


def condition(rig: Rig, kind: str) -> tuple[str, str, str] | None:
    found = next((one for one in rig.stack_now().status.conditions if one.type == kind), None)
    return (found.status, found.reason, found.message) if found is not None else None


def reason(rig: Rig, kind: str) -> str:
    found = condition(rig, kind)
    return found[1] if found is not None else ""


def plans(rig: Rig) -> list[UpgradePlan]:
    return sorted(rig.list_objects(UPGRADE_PLANS, UpgradePlan), key=lambda one: one.metadata.creation_timestamp)


def writes_to(rig: Rig, since: int) -> list[str]:
    """Kinds of all writes since a look at `rig.cluster.writes`."""
    return [one.kind for one in rig.cluster.writes[since:]]
