"""Everything that a stack renders, by the name of its golden file."""

from types import MappingProxyType

import msgspec

from tests.support.facts import node
from tests.support.node_upgrades import state, upgrade
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import DriverImage, GpuStack, GpuStackSpec
from upgrader.api.v1alpha1.driver_image import DriverImageSpec, DriverImageStatus
from upgrader.api.v1alpha1.operand_specs import DevicePluginSpec, DriverSpec
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.model.fleet import ImageFacts
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.node_protocol.driver_services import DriverService
from upgrader.stack import manifests
from upgrader.stack.build_jobs import build_job
from upgrader.stack.operands.nondisruptive_operands import NondisruptiveOperand
from upgrader.stack.settings import BuildSettings, StackSettings

SETTINGS = StackSettings(node_image="registry.example/upgrader@sha256:" + "c" * 64)
IMAGE = ImageFacts(
    key="b" * 16,
    vendor="sim",
    version="570.10",
    kernel="6.1.0-47-amd64",
    digest="registry.example/driver@sha256:" + "b" * 64,
)
SERVED = msgspec.structs.replace(IMAGE, vendor="nvidia", services=tuple(DriverService))
PLUGIN = "registry.example/plugin@sha256:" + "b" * 64

FRESH = {"kubeletVersion": "1.34.4"}
SAME_KUBELET = state("570.10", "1.34.4", "b")
HOOKED = state("560.1", "1.34.4", "a", runtimeKey="c" * 16)

IDENTITY = Identity(
    vendor="nvidia",
    recipe="nvidia-open",
    driver="550.163.01",
    flavour="open",
    kernel="6.12.94+deb13-amd64",
    os="trixie",
)
DRIVER_IMAGE = DriverImage(
    metadata=ObjectMeta(name="open-550", uid="0f" * 16),
    spec=DriverImageSpec(
        vendor="nvidia",
        recipe="nvidia-open",
        version="550.163.01",
        flavour="open",
        kernel="6.12.94+deb13-amd64",
        os="trixie",
    ),
    status=DriverImageStatus(phase=DriverImagePhase.BUILDING, attempts=1),
)
BUILDS = BuildSettings(
    repository="registry.example/drivers", builder_image="registry.example/builder@sha256:" + "d" * 64
)
SIGNED_BUILDS = msgspec.structs.replace(
    BUILDS,
    signing="signing",
    module_signing="module-signing",
    push_auth="push",
    insecure_registries=("registry.example",),
    node_selector=(("role", "build"),),
)

STACK = GpuStack(
    metadata=ObjectMeta(name="pool-a", uid="0e" * 16),
    spec=GpuStackSpec(
        node_selector={"pool": "a"},
        driver=DriverSpec(vendor="sim", version="570.10"),
        device_plugin=DevicePluginSpec(image=PLUGIN),
        node_features="Auto",
    ),
)

NCCL = {"image": "registry.example/nccl-tests@sha256:" + "f" * 64, "minBusBandwidth": 400.0}
DCGM = {"image": "registry.example/dcgm@sha256:" + "f" * 64}

UPGRADED = node("node-1", boot_id="boot-7")
CUDA_SAMPLE = {"workloadImage": "registry.example/cuda-sample@sha256:" + "e" * 64, "workloadRuntime": "nvidia"}


def validation(*, upgraded=UPGRADED, reverting=False, **more):
    return manifests.validation_pod(upgrade(**more), reverting=reverting, node=upgraded, settings=SETTINGS)


def plugin_of(vendor, driver, **more):
    settings = PluginSettings(vendor=vendor, driver_vendor=driver, resource_name="nvidia.com/gpu", **more)
    return manifests.plugin_daemonset("pool-a", "b" * 16, PLUGIN, settings, SETTINGS)


def nondisruptive_of(operand, vendor="nvidia", driver="nvidia", told=MappingProxyType({}), **more):
    settings = PluginSettings(vendor=vendor, driver_vendor=driver, resource_name="nvidia.com/gpu", **told)
    before = manifests.earlier_operands(operand, settings, set(Operand))
    one = NondisruptiveOperand(
        operand=operand,
        named=f"registry.example/{operand.lower()}:1",
        image=f"registry.example/{operand.lower()}@sha256:" + "e" * 64,
        plugin=settings,
        before=before,
        **{"max_unavailable": "10%", **more},
    )
    return manifests.nondisruptive_daemonset(STACK, one, SETTINGS)


def runtime_of(vendor, driver):
    settings = PluginSettings(vendor=vendor, driver_vendor=driver, resource_name="nvidia.com/gpu", cdi=True)
    return manifests.runtime_daemonset("pool-a", "b" * 16, PLUGIN, settings, SETTINGS)


HOOK = {"runtimeImage": "registry.example/hook@sha256:" + "b" * 64, "runtimeKey": "b" * 16}
REAL = {"driverVendor": "nvidia", "driverVersion": "535.309.01"}
MPS = {"mpsReplicas": 4, "mpsRuntime": "nvidia"}

PROGRAMS = state("535.309.01", "1.34.4", "b", **REAL, **CUDA_SAMPLE, allReduce=NCCL, diagnostics=DCGM)

RENDERED = {
    "node-features-daemonset": lambda: manifests.node_features_daemonset(STACK, SETTINGS),
    "driver-daemonset": lambda: manifests.driver_daemonset("pool-a", IMAGE, SETTINGS),
    "driver-daemonset-with-services": lambda: manifests.driver_daemonset("pool-a", SERVED, SETTINGS),
    "plugin-daemonset": lambda: plugin_of("sim", "sim"),
    "plugin-daemonset-on-a-real-driver": lambda: plugin_of("sim", "nvidia"),
    "plugin-daemonset-nvidia": lambda: plugin_of("nvidia", "nvidia"),
    "plugin-daemonset-shared": lambda: plugin_of("sim", "sim", time_slices=4),
    "plugin-daemonset-nvidia-shared": lambda: plugin_of("nvidia", "nvidia", time_slices=4, mig_strategy="mixed"),
    "plugin-daemonset-nvidia-mps": lambda: plugin_of("nvidia", "nvidia", mps_replicas=4),
    "plugin-daemonset-nvidia-mps-cdi": lambda: plugin_of(
        "nvidia", "nvidia", mps_replicas=4, mps_runtime="nvidia", cdi=True
    ),
    "plugin-daemonset-cdi": lambda: plugin_of("sim", "sim", cdi=True),
    "plugin-daemonset-nvidia-cdi": lambda: plugin_of("nvidia", "nvidia", cdi=True),
    "runtime-daemonset": lambda: runtime_of("sim", "sim"),
    "runtime-daemonset-on-a-real-driver": lambda: runtime_of("sim", "nvidia"),
    "runtime-daemonset-nvidia": lambda: runtime_of("nvidia", "nvidia"),
    "prepare-pod-with-a-runtime-hook": lambda: manifests.prepare_pod(
        upgrade(source={}, target=state("570.10", "1.34.4", "b", **HOOK)), SETTINGS
    ),
    "feature-discovery-daemonset-nvidia": lambda: nondisruptive_of(Operand.FEATURE_DISCOVERY),
    "monitoring-daemonset-nvidia": lambda: nondisruptive_of(Operand.MONITORING, max_unavailable="3"),
    "monitoring-daemonset-nvidia-mps": lambda: nondisruptive_of(Operand.MONITORING, told={"mps_replicas": 4}),
    "feature-discovery-daemonset": lambda: nondisruptive_of(Operand.FEATURE_DISCOVERY, "sim", "sim"),
    "monitoring-daemonset": lambda: nondisruptive_of(Operand.MONITORING, "sim", "sim"),
    "monitoring-daemonset-on-a-real-driver": lambda: nondisruptive_of(Operand.MONITORING, "sim"),
    "prepare-pod": lambda: manifests.prepare_pod(upgrade(), SETTINGS),
    "prepare-pod-of-a-new-node": lambda: manifests.prepare_pod(upgrade(source=FRESH, target=SAME_KUBELET), SETTINGS),
    "prepare-pod-nvidia": lambda: manifests.prepare_pod(
        upgrade(source={}, target=state("535.309.01", "1.34.4", "b", **REAL)), SETTINGS
    ),
    "prepare-pod-nvidia-mps": lambda: manifests.prepare_pod(
        upgrade(source={}, target=state("535.309.01", "1.34.4", "b", **REAL, **MPS)), SETTINGS
    ),
    "prepare-pod-sim-on-a-real-driver": lambda: manifests.prepare_pod(
        upgrade(source={}, target=state("535.309.01", "1.34.4", "b", **REAL, vendor="sim")), SETTINGS
    ),
    "build-job": lambda: build_job(DRIVER_IMAGE, IDENTITY, BUILDS),
    "build-job-signed": lambda: build_job(DRIVER_IMAGE, IDENTITY, SIGNED_BUILDS),
    "upgrade-job": lambda: manifests.upgrade_job(upgrade(), reverting=False, settings=SETTINGS),
    "upgrade-job-back": lambda: manifests.upgrade_job(upgrade(), reverting=True, settings=SETTINGS),
    "validation-pod": validation,
    "validation-pod-back": lambda: validation(reverting=True),
    "validation-pod-nvidia": lambda: validation(target=state("535.309.01", "1.34.4", "b", **REAL, **CUDA_SAMPLE)),
    "validation-pod-nvidia-diagnostics": lambda: validation(target=PROGRAMS, level="Diagnostics"),
    "validation-pod-back-without-programs": lambda: validation(target=PROGRAMS, level="Diagnostics", reverting=True),
    "prepare-pod-nvidia-diagnostics": lambda: manifests.prepare_pod(
        upgrade(source={}, target=PROGRAMS, level="Diagnostics"), SETTINGS
    ),
    "validation-pod-nvidia-without-a-workload": lambda: validation(target=state("535.309.01", "1.34.4", "b", **REAL)),
}
