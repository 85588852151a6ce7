"""What does not go together where GPUs are shared by NVIDIA's MPS. Pure.

The same sentences are those of the API server's rules; a forecast of a stack that is not applied yet is refused by them
here. What NVIDIA's plugin refuses was read in k8s-device-plugin v0.20.0: with strategy `mixed` it does not start, with
`single` it refuses each partition that it finds.
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
    """Refuse MPS together with what it does not go with.

    Raises:
        ConfigurationError: says why.
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
