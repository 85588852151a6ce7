"""GpuStack.spec: the operands of a pool."""

from typing import Annotated, Literal

from msgspec import Meta

from upgrader.core.fields import (
    ImageReference,
    Resource,
    Text,
    VersionText,
    Word,
    field_doc,
)

ParameterValue = Annotated[str, Meta(min_length=1, max_length=160, pattern=r"^[A-Za-z0-9_.,:;=+/@%-]+$")]
"""The value of a module's parameter: without spaces, quotes and characters of a shell."""


class DriverSpec(Resource, frozen=True, kw_only=True):
    vendor: Annotated[
        Word,
        field_doc(
            "Vendor of the operands of the pool: `nvidia`, or a vendor that another Python package adds to the "
            "controller (gpu-upgrader-dev adds `sim`, which simulates devices on nodes without GPUs)."
        ),
    ]
    version: Annotated[VersionText, field_doc("Driver version that every node of the pool is upgraded to.")]
    recipe: Annotated[
        Word | None,
        field_doc(
            "Recipe of the driver: the name of a folder in driver-images/. If unset, `flavour` selects "
            "the recipe; if `flavour` is unset too, the default of the vendor is used (`nvidia-open` for "
            "vendor nvidia)."
        ),
    ] = None
    flavour: Annotated[
        Word | None,
        field_doc(
            "Flavour of the kernel modules: `open` or `proprietary` for vendor nvidia. Each recipe has "
            "one flavour. If unset, the flavour of the recipe is used."
        ),
    ] = None
    unverified: Annotated[
        Literal["Refuse", "Allow"],
        field_doc(
            "Policy for driver images whose signature is not verified because the controller has no "
            "public key (UPGRADER_IMAGE_KEY). `Refuse`: these images are not installed. `Allow`: these "
            "images are installed by digest. Defaults to `Refuse`."
        ),
    ] = "Refuse"
    parameters: Annotated[
        dict[str, ParameterValue],
        Meta(
            description="Parameters with which the driver's kernel modules are loaded, by `module.parameter` as on a "
            "kernel command line, for example `nvidia.NVreg_GrdmaPciTopoCheckOverride`. The options of modprobe on "
            "the node have no effect on these modules. A change unloads the driver.",
            max_length=16,
        ),
    ] = {}
    on_unload_failure: Annotated[
        Literal["Fail", "Reboot"],
        field_doc(
            "Action of a plan's upgrade if the driver of a node cannot be unloaded. `Fail`: the upgrade fails and "
            "reverts. `Reboot`: the node is rebooted once into the kernel that it runs. Requires `spec.reboot`, whose "
            "commands are used; an upgrade that replaces the driver then ends all pods on its node. A change is no "
            "drift. Defaults to `Fail`."
        ),
    ] = "Fail"


class RuntimeSpec(Resource, frozen=True, kw_only=True):
    """Runtime hook, which describes GPUs to the container runtime as CDI devices, so that only pods that request
    them get them.
    """

    management: Annotated[
        Literal["Managed", "External"],
        field_doc(
            "`External`: the stack does not manage the runtime hook. `Managed`: the stack manages the "
            "runtime hook and changes it in upgrades. Defaults to `External`."
        ),
    ] = "External"
    image: Annotated[
        ImageReference | None,
        field_doc("Image of the runtime hook, by tag or digest. Required if `management` is `Managed`."),
    ] = None


Slices = Annotated[int, Meta(ge=2, le=64)]


class MpsSpec(Resource, frozen=True, kw_only=True):
    """NVIDIA's Multi-Process Service: containers share a GPU, each with an equal part of its memory and threads."""

    replicas: Annotated[
        int,
        Meta(
            description="Number of devices that the device plugin advertises for each GPU. The maximum for GPUs with "
            "a compute capability below 7.5 is 16.",
            ge=2,
            le=48,
        ),
    ]
    runtime_class: Annotated[
        Text | None,
        field_doc(
            "RuntimeClass that makes the programs of the driver available to the MPS control daemon and "
            "the device plugin. If unset, the default runtime is used."
        ),
    ] = None


class SharingSpec(Resource, frozen=True, kw_only=True):
    time_slices: Annotated[
        Slices | None,
        field_doc(
            "Number of devices that the device plugin advertises for each GPU. Up to this number of "
            "containers take turns on the GPU, without isolation from each other. If unset, time slicing "
            "is not used."
        ),
    ] = None
    mps: Annotated[
        MpsSpec | None,
        field_doc(
            "Sharing of GPUs by NVIDIA's MPS, which limits the memory and threads of each container. If "
            "unset, MPS is not used. Requires vendor nvidia. Cannot be combined with `timeSlices` or "
            "`migStrategy`."
        ),
    ] = None
    mig_strategy: Annotated[
        Literal["single", "mixed"] | None,
        field_doc(
            "Strategy by which NVIDIA's device plugin advertises MIG partitions of GPUs. If unset, "
            "partitions are not advertised. Requires vendor nvidia."
        ),
    ] = None


class DevicePluginSpec(Resource, frozen=True, kw_only=True):
    management: Annotated[
        Literal["Managed", "External"],
        field_doc(
            "`External`: the stack does not manage the device plugin and uses the resources that an "
            "existing one advertises. `Managed`: the stack manages the device plugin. Defaults to "
            "`Managed`."
        ),
    ] = "Managed"
    image: Annotated[
        ImageReference | None,
        field_doc("Image of the device plugin, by tag or digest. Required if `management` is `Managed`."),
    ] = None
    resource_name: Annotated[
        Text, field_doc("Extended resource that the device plugin advertises. Defaults to `nvidia.com/gpu`.")
    ] = "nvidia.com/gpu"
    sharing: Annotated[SharingSpec, field_doc("Sharing of one GPU by several containers.")] = SharingSpec()


class NondisruptiveOperandSpec(Resource, frozen=True, kw_only=True):
    """Operand that is updated without an effect on jobs, by a rolling update outside of plans."""

    management: Annotated[
        Literal["Managed", "External"],
        field_doc(
            "`External`: the stack does not manage the operand. `Managed`: the stack manages the operand."
            " Defaults to `External`."
        ),
    ] = "External"
    image: Annotated[
        ImageReference | None,
        field_doc(
            "Image of the operand, by tag or digest. A tag is resolved to a digest only once. Required "
            "if `management` is `Managed`."
        ),
    ] = None
    max_unavailable: Annotated[
        str,
        Meta(
            description="Maximum number of nodes on which the operand may be unavailable at the same time during an "
            "update: a number or a percentage. Defaults to 10%.",
            pattern=r"^([1-9][0-9]{0,3}|[1-9][0-9]?%|100%)$",
            max_length=4,
        ),
    ] = "10%"
