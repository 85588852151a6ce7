"""The services beside a driver: programs that run while it is loaded, each in a container of the driver's pod.

An image names its services in its manifest and in a label. A service runs only with a driver that its version fits.
"""

from enum import StrEnum

from upgrader.core.errors import ConfigurationError

SERVICES_LABEL = "gpu-upgrader.io/services"
"""Label of an image: the names of its services, separated by commas."""

_SHOWN = 200


class DriverService(StrEnum):
    """The services of NVIDIA's driver."""

    FABRIC_MANAGER = "fabricmanager"
    """Configures the NVSwitches of a node; before that, CUDA programs fail with error 802."""

    PERSISTENCED = "persistenced"
    """Keeps the GPUs initialized while no program uses them."""

    IMEX = "imex"
    """Exports memory of GPUs to other nodes of an NVLink domain."""


REQUIRED = frozenset({DriverService.FABRIC_MANAGER, DriverService.IMEX})
"""Services without which GPUs do not work where the service is needed: a failure makes the driver's pod not ready."""

SAME_BRANCH = frozenset({DriverService.PERSISTENCED})
"""Services that fit each driver of their branch, the number before the first dot. All others fit one version only.

Debian 12 has nvidia-persistenced 535.171.04 for the drivers 535.261.03 and 535.309.01. A fabric manager ends itself if
its version is not that of the driver (NVIDIA, Fabric Manager User Guide).
"""


def fits_driver(service: DriverService, version: str, driver: str) -> bool:
    """Whether a service of this version may run with a driver; both are upstream versions, such as 535.261.03."""
    if service in SAME_BRANCH:
        return version.partition(".")[0] == driver.partition(".")[0]
    return version == driver


def parse_services(text: str) -> tuple[DriverService, ...]:
    """The services in the label of an image, sorted; none if the text is empty.

    Raises:
        ConfigurationError: the text names a service that this release does not know.
    """
    try:
        return tuple(sorted({DriverService(name) for name in text.split(",") if text}))
    except ValueError as error:
        raise ConfigurationError(
            f"the label {SERVICES_LABEL} of the image names an unknown service",
            details=str(error)[:_SHOWN],
            resolution=f"Known are {', '.join(DriverService)}. Build the image with this release, or upgrade upgrader.",
        ) from error
