"""Settings that conflict with the sharing of GPUs by NVIDIA's MPS. Pure.

The validation rules of the CRD have the same sentences; here they refuse a forecast of a stack that is not applied yet.
The refusals of NVIDIA's plugin are from the source of k8s-device-plugin v0.20.0: with strategy `mixed` it does not
start, with `single` it refuses each partition.
"""

from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import Target
from upgrader.core.model.vendors import NVIDIA

MPS_RESOURCE = "nvidia.com/gpu"

SIMULATED = "simulated GPUs cannot be shared by MPS: use timeSlices"
BOTH = "a GPU is shared by timeSlices or by mps: name one of them"
PARTITIONS = "NVIDIA's device plugin shares no partitions by MPS: leave migStrategy or mps out"
OTHER_RESOURCE = f"NVIDIA's device plugin shares nothing but {MPS_RESOURCE} by MPS: leave resourceName out"


def check(target: Target) -> None:
    """Refuse MPS together with a conflicting setting.

    Raises:
        ConfigurationError: with the conflict.
    """
    if not target.mps_replicas:
        return
    faults = (
        (target.operands != NVIDIA, SIMULATED),
        (target.time_slices > 0, BOTH),
        (bool(target.mig_strategy), PARTITIONS),
        (target.resource_name != MPS_RESOURCE, OTHER_RESOURCE),
    )
    for wrong, sentence in faults:
        if wrong:
            raise ConfigurationError(f"spec.devicePlugin: {sentence}")
