"""The environment of the demo and the e2e tests: a cluster, the operator's images in its registry, its CRDs and RBAC.

Only the controller under test runs on the host; API server, kubelets, containers and jobs are real.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, JOBS
from upgrader.core.errors import DevClusterError
from upgrader.images.layout import Layout
from upgrader.images.product import Images
from upgrader.images.publish import Product, StaticPrograms, product_layouts, push_kubelet, push_product
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader_dev.demo import manifests, real_drivers
from upgrader_dev.demo.controller import ControllerProcess
from upgrader_dev.demo.real_drivers import PARAMETERS, DeclaredDriver
from upgrader_dev.devcluster import (
    ClusterSpec,
    DevCluster,
    cosign_program,
    delete_cluster,
    kubelet_program,
    start_cluster,
)

Progress = Callable[[str], None]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A cluster that is prepared for a controller."""

    cluster: DevCluster
    images: Product
    kernel: str
    folder: Path

    def controller(self, name: str = "controller") -> ControllerProcess:
        """A controller process that is not started yet."""
        return ControllerProcess(self.cluster, self.folder, self.images.node, name)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[KubeCluster]:
        """A client of the cluster administrator."""
        async with await KubeCluster.connect(str(self.cluster.kubeconfig)) as kube:
            yield kube

    def stack(self, driver: str, kubelet: str, plugin: str) -> manifests.Manifest:
        """The stack of the pool with these versions."""
        return manifests.stack_manifest(
            "pool",
            driver=driver,
            plugin=self.images.plugins[plugin],
            kubelet=kubelet,
            artifact=self.images.kubelets[kubelet],
        )

    def real_stack(self, driver: DeclaredDriver, kubelet: str, plugin: str, **more: Any) -> manifests.Manifest:  # noqa: ANN401
        """The same with a real driver under the simulated devices; `more` are additional fields of the spec."""
        body = self.stack(driver.version, kubelet, plugin)
        body["spec"]["driver"] |= {"recipe": driver.recipe, "version": driver.version, "parameters": PARAMETERS}
        return body | {"spec": body["spec"] | more}

    def trainer(self, name: str, **options: Any) -> manifests.Manifest:  # noqa: ANN401 - the options of manifests.trainer_job
        """A training job from the trainer image."""
        return manifests.trainer_job(name, image=self.images.trainer, **options)

    def push_kubelet(self, tag: str, version: str, binary: Path) -> str:
        """Push a kubelet artifact with this binary; returns its reference."""
        return push_kubelet(self.cluster.registry, tag=tag, version=version, binary=binary, progress=print)

    def journals(self, job: str) -> Path:
        """The journals of the job's members, on the volume that outlives their pods."""
        return self.cluster.shared / job


@asynccontextmanager
async def open_stage(
    spec: ClusterSpec, build: Callable[[DevCluster], Awaitable[Stage]], progress: Progress
) -> AsyncIterator[Stage]:
    """A prepared cluster, which is deleted at the end."""
    cluster = await asyncio.to_thread(start_cluster, spec, progress)
    try:
        built = await build(cluster)
        try:
            yield built
        finally:
            remove_stage(built)
    finally:
        cluster.close()
        await asyncio.to_thread(delete_cluster, spec.name)
        progress("the cluster is deleted")


async def set_up(cluster: DevCluster, drivers: tuple[str, ...], kubelets: tuple[str, ...], progress: Progress) -> Stage:
    """Push images, install CRDs and RBAC rules, and create driver images.

    Raises:
        DevClusterError: this is not a source tree.
    """
    _require_source()
    boxes = cluster.box_nodes()
    kernel = (boxes[0] if boxes else cluster.virtual_nodes()[0]).wait_ready().kernel
    stage = await _push_images(cluster, drivers, kernel, kubelets, progress)
    bodies = [manifests.driver_image(version, kernel, image) for version, image in stage.images.drivers.items()]
    await _declare_images(stage, bodies)
    progress("CRDs, RBAC rules and driver images are installed")
    return stage


def images_of_virtual_nodes(
    kernels: Sequence[str], drivers: Sequence[DeclaredDriver], kubelets: tuple[str, ...], progress: Progress
) -> tuple[Layout, ...]:
    """All images that `set_up_virtual` pushes and nodes run, for their disks before they boot.

    Raises:
        ConfigurationError: a driver cannot be built for one of the kernels.
    """
    with Images(progress) as images:
        operator_images = product_layouts(images, kubelets=kubelets, programs=_find_programs(progress))
    del operator_images["controller"]  # which runs outside the cluster
    return (*operator_images.values(), *real_drivers.build_layouts(_pair_with_kernels(kernels, drivers), progress))


async def set_up_virtual(
    cluster: DevCluster, drivers: Sequence[DeclaredDriver], kubelets: tuple[str, ...], progress: Progress
) -> Stage:
    """The same for virtual nodes: NVIDIA's real drivers, each for every kernel of the nodes.

    Raises:
        DevClusterError: this is not a source tree.
        ConfigurationError: a driver cannot be built for one of the kernels.
    """
    _require_source()
    first = cluster.virtual_nodes()[0]
    kernel = first.wait_ready().kernel
    stage = await _push_images(cluster, (), kernel, kubelets, progress)
    requests = _pair_with_kernels(first.kernels, drivers)
    images = await asyncio.to_thread(real_drivers.push_drivers, cluster.registry, requests, progress)
    await _declare_images(stage, [real_drivers.driver_image(*request, image) for request, image in images.items()])
    progress(f"CRDs, RBAC rules and {len(images)} driver images with real modules are installed")
    return stage


async def _push_images(
    cluster: DevCluster, drivers: tuple[str, ...], kernel: str, kubelets: tuple[str, ...], progress: Progress
) -> Stage:
    images = await asyncio.to_thread(
        push_product,
        cluster.registry,
        drivers=drivers,
        kernel=kernel,
        kubelets=kubelets,
        programs=_find_programs(progress),
        progress=progress,
    )
    return Stage(cluster=cluster, images=images, kernel=kernel, folder=Path(tempfile.mkdtemp(prefix="upgrader-")))


def _find_programs(progress: Progress) -> StaticPrograms:
    return StaticPrograms(
        kubelet=lambda version: kubelet_program(version, progress), cosign=lambda: cosign_program(progress)
    )


def _pair_with_kernels(kernels: Sequence[str], drivers: Sequence[DeclaredDriver]) -> list[tuple[DeclaredDriver, str]]:
    return [(driver, kernel) for kernel in kernels for driver in drivers]


async def _declare_images(stage: Stage, images: Iterable[manifests.Manifest]) -> None:
    for file in ("namespace.yaml", "rbac.yaml", "job-namespace.yaml"):
        apply_file(stage.cluster, DEPLOY / file, NAMESPACE="default")
    async with stage.admin() as kube:
        await install_kinds(kube)
        for body in images:
            await kube.apply(DRIVER_IMAGES, body)


def _require_source() -> None:
    if not DEPLOY.is_dir():
        raise DevClusterError(f"{DEPLOY} is missing", resolution="Run this from a source tree.")


def remove_stage(stage: Stage) -> None:
    """Remove the files outside the cluster."""
    shutil.rmtree(stage.folder, ignore_errors=True)


def apply_file(cluster: DevCluster, path: Path, **placeholders: str) -> None:
    """Apply a manifest of deploy/; the given placeholders (words in capitals) are replaced."""
    text = path.read_text(encoding="utf-8")
    for word, value in placeholders.items():
        text = text.replace(word, value)
    for body in yaml.safe_load_all(text):
        if body is not None:
            namespace = body["metadata"].get("namespace", "default")
            cluster.api.create_or_patch(COLLECTIONS[body["kind"]].format(namespace=namespace), body)


def deploy_controller(built: Stage, **settings: str) -> None:
    """Apply the Deployment of deploy/, with the built images; `settings` are additional UPGRADER_ variables."""
    body = yaml.safe_load((DEPLOY / "controller.yaml").read_text(encoding="utf-8"))
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["image"] = built.images.upgrader
    values = {"NODE_IMAGE": built.images.node, "INSECURE_REGISTRIES": built.cluster.registry, **settings}
    variables = [{"name": f"UPGRADER_{name}", "value": value} for name, value in values.items()]
    replaced = {variable["name"] for variable in variables}
    container["env"] = [*(variable for variable in container["env"] if variable["name"] not in replaced), *variables]
    path = COLLECTIONS["Deployment"].format(namespace=body["metadata"]["namespace"])
    built.cluster.api.create_or_patch(path, body)


async def apply_stack(kube: KubeCluster, body: Mapping[str, Any]) -> None:
    """Create or change a GpuStack."""
    await kube.apply(GPU_STACKS, body)


async def start_job(kube: KubeCluster, body: Mapping[str, Any]) -> None:
    """Create a training job."""
    await kube.create(JOBS, body)
