"""Settings of GPUs that conflict, with each other or with the vendor. Pure.

The validation rules of the CRD have the same sentences on MPS; here they refuse a forecast of a stack that is not
applied yet. The refusals of NVIDIA's plugin are from the source of k8s-device-plugin v0.20.0: with strategy `mixed` it
does not start, with `single` it refuses each partition.
"""

from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import Target
from upgrader.core.model.vendors import VendorFacts

MPS_RESOURCE = "nvidia.com/gpu"

BOTH = "timeSlices and mps are mutually exclusive"
PARTITIONS = "NVIDIA's device plugin does not share MIG partitions by MPS: omit migStrategy or mps"
PARTITIONED = "the program needs whole GPUs, which a pool with MIG partitions does not offer: omit it or migStrategy"
SHARED_BY_MPS = "the program needs all GPUs in one container, which MPS does not allow: omit it or sharing.mps"
OTHER_RESOURCE = f"NVIDIA's device plugin shares only {MPS_RESOURCE} by MPS: omit resourceName"


def check_gpu_settings(target: Target, facts: VendorFacts) -> None:
    """Refuse conflicting settings.

    Raises:
        ConfigurationError: with the conflict.
    """
    vendor = f"GPUs of vendor {facts.name}"
    conflicts = (
        (target.mps_replicas and not facts.mps, "devicePlugin", f"{vendor} cannot be shared by MPS: use timeSlices"),
        (target.mps_replicas and target.time_slices, "devicePlugin", BOTH),
        (target.mps_replicas and target.mig_strategy, "devicePlugin", PARTITIONS),
        (target.mps_replicas and target.resource_name != MPS_RESOURCE, "devicePlugin", OTHER_RESOURCE),
        (
            target.mig_strategy and not facts.partitions,
            "devicePlugin",
            f"{vendor} cannot be partitioned: omit migStrategy",
        ),
        (
            target.workload_image and not facts.workload,
            "validation",
            f"{vendor} are validated by a built-in program: omit workloadImage",
        ),
        *(
            (program is not None and is_divided, f"validation.{name}", sentence)
            for name, program in (("allReduce", target.all_reduce), ("diagnostics", target.diagnostics))
            for is_divided, sentence in ((target.mig_strategy, PARTITIONED), (target.mps_replicas, SHARED_BY_MPS))
        ),
    )
    for is_conflict, field, sentence in conflicts:
        if is_conflict:
            raise ConfigurationError(f"spec.{field}: {sentence}")
