"""A driver image built in the cluster: in a pod without any way out, its modules and itself signed, verified, pulled.

The small module every day; all of NVIDIA's with the profile of the nightly tests.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import deploying, pod_network
from tests.support.examples import PROFILE, Profile
from tests.support.repository import ROOT
from tests.support.signing_keys import make_key
from tests.support.trusting import PASSWORD, key_pair
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, Pod, Wire
from upgrader.api.resources import DRIVER_IMAGES, JOBS, PODS, ResourceKind
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.driver_image.image_names import packages_name
from upgrader.core.model.phases import DriverImagePhase
from upgrader.images.drivers.builder.assembly import take_modules
from upgrader.images.drivers.publish.bundle_registry import Signer
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.modules.signing import check_signatures
from upgrader.images.publish import push_builder
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import Cosign, SigningKey
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.stack.build_jobs import BUILD
from upgrader_dev.demo import waiting
from upgrader_dev.demo.controller import ControllerProcess
from upgrader_dev.devcluster import DevCluster, cosign_program

NIGHTLY = PROFILE is Profile.NIGHTLY
SECONDS = 3600 if NIGHTLY else 900
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(SECONDS + 300)]

RECIPE = "nvidia" if NIGHTLY else "fakebridge"
KERNEL = "6.1.0-50-amd64" if NIGHTLY else "6.1.0-50-cloud-amd64"
DRIVER = "535.309.01" if NIGHTLY else "1.0"
KIND = {"vendor": "nvidia", "flavour": "proprietary"} if NIGHTLY else {"vendor": "sim"}


class Secret(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


SECRETS = ResourceKind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True, type=Secret)


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., DevCluster]) -> DevCluster:
    return start_cluster("builds", boxes=1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[SigningKey, Path]:
    return key_pair(tmp_path_factory.mktemp("keys"), cosign_program(print))


@pytest.fixture(scope="module")
def module_key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_key(tmp_path_factory.mktemp("modules"), passphrase=PASSWORD)


@pytest.fixture(scope="module")
def packed(cluster: DevCluster, keys: tuple[SigningKey, Path], module_key: tuple[Path, Path]) -> tuple[str, str]:
    """The packages of the cell in the cluster's registry, signed, and the build key that they make."""
    site = Site(WorkspaceSettings(module_certificate=module_key[1]), print)
    catalog = site.current_catalog()
    identity = site.find_identity(catalog, driver=DRIVER, kernel=KERNEL, recipe=RECIPE)
    definition = site.matrix_cells(catalog).define_cell(Cell(identity=identity))
    repository = f"{cluster.registry}/drivers"
    signer = Signer(key=keys[0], cosign=Cosign(cosign_program(print)))
    site.push_packages(definition, packages_name(repository, identity), insecure=[cluster.registry], signer=signer)
    return repository, definition.key


@pytest.fixture
async def api(cluster: DevCluster) -> AsyncIterator[KubeCluster]:
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as connected:
        await install_kinds(connected)
        await deploying.deploy(connected)
        yield connected


async def test_an_image_is_built_signed_verified_and_pulled(
    cluster: DevCluster,
    packed: tuple[str, str],
    keys: tuple[SigningKey, Path],
    module_key: tuple[Path, Path],
    api: KubeCluster,
    tmp_path: Path,
) -> None:
    repository, build_key = packed
    program = cosign_program(print)
    key, public = keys
    await api.create(SECRETS, secret("signing", **_signing(key.path, public)))
    await api.create(SECRETS, secret("modules", **_module_signing(*module_key)))
    await deploying.apply(api, _policy(cluster))
    push = functools.partial(push_builder, cluster.registry, cosign=program, progress=print)
    builder = await asyncio.to_thread(push)
    controller = ControllerProcess(cluster, tmp_path, builder)
    controller.start(
        IMAGE_REPOSITORY=repository,
        BUILDER_IMAGE=builder,
        BUILD_CPU="1",
        BUILD_MEMORY="3Gi",
        SIGNING_SECRET="signing",  # noqa: S106 - its name
        MODULE_SIGNING_SECRET="modules",  # noqa: S106 - its name
        IMAGE_KEY=str(public),
        COSIGN=str(program),
    )
    try:
        await api.create(DRIVER_IMAGES, wanted())
        await asyncio.to_thread(_has_no_way_out, cluster, await _building(api))
        image = await _ended(api)
    finally:
        controller.stop()
    assert image.status.phase is DriverImagePhase.READY, await _why(api, image)
    assert (image.status.build_key, image.status.message) == (build_key, "verified and pinned by its digest")
    checks = {one.check: one.passed for one in image.status.checks}
    assert checks == dict.fromkeys(
        (CheckName.CONTENTS, CheckName.IMAGE_SIGNATURE, CheckName.PROVENANCE, CheckName.SBOM), True
    )
    await _modules_are_signed(cluster, image, module_key[1], tmp_path)
    await _pulled(api, image)


def secret(name: str, **texts: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": deploying.SYSTEM}, "stringData": texts}


def _signing(key: Path, public: Path) -> dict[str, str]:
    return {"cosign.key": key.read_text(), "cosign.pub": public.read_text(), "cosign.password": PASSWORD}


def _module_signing(key: Path, certificate: Path) -> dict[str, str]:
    return {"tls.key": key.read_text(), "tls.crt": certificate.read_text(), "passphrase": PASSWORD}


def _policy(cluster: DevCluster) -> str:
    """Shipped for networks that enforce it. The one here does not: what is shown here are the routes."""
    host, _, port = cluster.registry.partition(":")
    text = (ROOT / "deploy/build-network.yaml").read_text()
    return text.replace("REGISTRY_CIDR", f"{host}/32").replace("REGISTRY_PORT", port)


def wanted() -> dict[str, Any]:
    spec = {**KIND, "recipe": RECIPE, "version": DRIVER, "kernel": KERNEL, "os": "bookworm"}
    return {"metadata": {"name": "wanted"}, "spec": spec}


async def _ended(api: KubeCluster) -> DriverImage:
    found: list[DriverImage] = []

    async def ended() -> bool:
        image = await api.get(DRIVER_IMAGES, "wanted")
        assert image is not None
        found[:] = [image]
        over = {DriverImagePhase.READY, DriverImagePhase.UNBUILDABLE, DriverImagePhase.UNUSABLE}
        return image.status.phase in over or image.status.attempts > 1

    await waiting.poll_until(ended, SECONDS, "the image was built, or not")
    return found[0]


async def _building(api: KubeCluster) -> Pod:
    """The build pod, while its program runs."""
    found: list[Pod] = []

    async def runs() -> bool:
        found[:] = await api.list(PODS, deploying.SYSTEM, labels=f"{names.LABEL_COMPONENT}={BUILD}")
        return any(one.status.phase not in {"", "Pending"} for one in found)

    await waiting.poll_until(runs, SECONDS, "the build pod runs")
    return found[0]


def _has_no_way_out(cluster: DevCluster, pod: Pod) -> None:
    """It reaches the registry, and has no route to anything that is not the cluster's; nothing names another place."""
    (node,) = cluster.box_nodes()
    uid = pod.metadata.uid
    outside = [f"{one}:9" for one in (pod_network.NOBODY, *pod_network.addresses_elsewhere(cluster))]
    assert pod_network.connects(node, uid, cluster.registry, *outside) == {
        cluster.registry: pod_network.REACHED,
        **dict.fromkeys(outside, pod_network.SILENT),
    }
    assert pod_network.strange_routes(cluster, node) == []
    named = pod_network.environment(node, uid, "--packages")
    assert "COSIGN_PASSWORD" in named
    assert {one for one in named if one.startswith("UPGRADER_DEBIAN") or one.lower().endswith("_proxy")} == set()


async def _modules_are_signed(cluster: DevCluster, image: DriverImage, certificate: Path, folder: Path) -> None:
    """In the image that the pod has pushed, each by the given key and by no other."""
    async with RegistryClient(insecure=[cluster.registry]) as registry:
        layout = await registry.pull(image.status.digest or "", folder / "pushed")
    assert layout is not None
    modules = take_modules(layout, folder / "modules")
    signed = check_signatures(modules, certificate)
    assert (signed.passed, signed.reason) == (True, f"{len(modules)} modules signed by the key of {certificate.name}")
    _, stranger = make_key(folder, "stranger")
    assert check_signatures(modules, stranger).passed is False


async def _why(api: KubeCluster, image: DriverImage) -> str:
    pods = await api.list(PODS, deploying.SYSTEM)
    jobs = await api.list(JOBS, deploying.SYSTEM)
    return f"{image.status}\n{[one.status for one in jobs]}\n{[one.status for one in pods]}"


async def _pulled(api: KubeCluster, image: DriverImage) -> None:
    """The kubelet pulls it by its digest, and it is what it says."""
    command = ["/bin/sh", "-c", f"grep -q {RECIPE} /driver/manifest.json && test -s /driver/load-order"]
    container = {"name": "look", "image": image.status.digest, "command": command}
    spec = {"restartPolicy": "Never", "containers": [container]}
    await api.create(PODS, {"metadata": {"name": "look", "namespace": "default"}, "spec": spec})

    async def over() -> bool:
        pod = await api.get(PODS, "look", "default")
        return pod is not None and pod.status.phase in {"Succeeded", "Failed"}

    await waiting.poll_until(over, 120, "the pod has looked into the image")
    pod = await api.get(PODS, "look", "default")
    assert pod is not None
    assert pod.status.phase == "Succeeded"
