"""One driver image in a rig: brought or wanted, and looked at step by step."""

from tests.support.building import build_ends
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.model.phases import DriverImagePhase, transition_of
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.stack.settings import BuildSettings
from upgrader_dev.simulated.cluster.rig import Rig

REFERENCE = "registry/sim-driver:1"
REPOSITORY = "registry/drivers"
IDENTITY = Identity(vendor="sim", recipe="fakebridge", driver="1", kernel="6.1.0-50-amd64", os="bookworm")
NAMED = image_name(REPOSITORY, IDENTITY)
BUILDS = BuildSettings(repository=REPOSITORY, builder_image="registry/builder@sha256:" + "d" * 64, max_concurrent=1)
D = DriverImagePhase


def brought(rig: Rig) -> None:
    spec = {"vendor": "sim", "version": "1", "kernel": "6.1", "image": REFERENCE}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "one"}, "spec": spec})


def wanted(rig: Rig, name: str = "one", kernel: str = IDENTITY.kernel) -> None:
    spec = {"vendor": "sim", "recipe": "fakebridge", "version": "1", "kernel": kernel, "os": "bookworm"}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": name}, "spec": spec})


def make() -> Rig:
    """Images are built, and the packages of the one are packed."""
    made = Rig()
    made.builds = BUILDS
    made.registry.push(packages_name(REPOSITORY, IDENTITY), "ee")
    return made


def image(rig: Rig, name: str = "one") -> DriverImage:
    return next(one for one in rig.list_objects(DRIVER_IMAGES, DriverImage) if one.metadata.name == name)


async def look(rig: Rig, name: str = "one") -> tuple[D, str]:
    """One step; where the image is afterwards, and why."""
    before = image(rig, name)
    await image_reconciler.reconcile_image(rig.context, name)
    after = image(rig, name)
    assert after.status.phase is before.status.phase or after.status.phase in transition_of(before.status.phase).to
    return after.status.phase, after.status.message


async def built(rig: Rig, end: BuildResult | BuildRefusal, *, code: int) -> tuple[D, str]:
    """A wanted image whose build ends like this; where the image is then, and why."""
    wanted(rig)
    await look(rig)
    await look(rig)
    build_ends(rig, end, code=code)
    return await look(rig)
