"""The report of a survey of a node: what would make an upgrade fail, or differ from what is expected. Values."""

from enum import StrEnum

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity


class SurveyCheck(StrEnum):
    """A finding on a node, as one word."""

    CANNOT_LOOK = "CannotLook"
    DRIVER_IN_USE = "DriverInUse"
    FOREIGN_DRIVER = "ForeignDriver"
    COMPANION_MODULES = "CompanionModules"
    NOUVEAU = "NouveauLoaded"
    DRIVER_AT_BOOT = "DriverAtBoot"
    HOST_LIBRARIES = "HostLibraries"
    FIRMWARE_PATH = "FirmwarePath"
    MODULE_PARAMETERS = "ModuleParameters"
    MODULE_SIGNATURE = "ModuleSignature"
    GPU_FAULT = "GpuFault"
    MIG = "MigDevices"
    FABRIC_MANAGER = "FabricManager"
    PEERMEM = "GpuDirectRdma"
    KUBELET_UNIT = "KubeletUnit"
    KUBELET_ARGUMENTS = "KubeletArguments"
    CONTAINER_RUNTIME = "ContainerRuntime"
    CGROUP_VERSION = "CgroupVersion"
    CONTAINER_TOOLKIT = "ContainerToolkit"
    CDI_FILES = "CdiFiles"
    OPERATING_SYSTEM = "OperatingSystem"
    PACKAGE_UPGRADES = "PackageUpgrades"


class SurveyReport(Struct, frozen=True, kw_only=True):
    """All findings, the worst first, the facts on the node that were read for them (strings for display), and the
    duration in seconds.

    A finding with severity `problem` prevents an upgrade: the prepare step fails. `ok` means that the upgrade handles
    what was found.
    """

    findings: tuple[Advice, ...] = ()
    facts: dict[str, str] = {}
    seconds: float = 0.0

    @property
    def problems(self) -> tuple[Advice, ...]:
        """The findings that prevent an upgrade."""
        return tuple(advice for advice in self.findings if advice.severity is Severity.PROBLEM)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """The findings that a user should review before an upgrade."""
        return tuple(advice for advice in self.findings if advice.severity is Severity.WARNING)
