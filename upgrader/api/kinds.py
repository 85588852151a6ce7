"""Properties of a kind that its type in v1alpha1/ cannot express: short names, columns of `kubectl get`, validation
rules.

Rules are CEL expressions that the API server evaluates (tests/cluster/test_crds.py tests each). A rule with `oldSelf`
applies to updates only. The sentence of a rule is the error message that the user gets.
"""

from typing import Any

from msgspec import Struct

from upgrader.api import resources as r
from upgrader.api.resources import ResourceKind
from upgrader.core.model import sharing
from upgrader.core.model.operands import Operand
from upgrader.core.model.upgrade_limits import REBOOT_MARGIN_SECONDS, UNLOAD_MARGIN_SECONDS
from upgrader.core.node_protocol.module_parameters import PARAMETER_NAME


class ValidationRule(Struct, frozen=True):
    """`cel` must be true for the value at `path` (dotted, for example spec.kubelet; empty for the whole object)."""

    path: str
    cel: str
    sentence: str

    def manifest(self) -> dict[str, str]:
        """As an entry of x-kubernetes-validations."""
        return {"rule": self.cel, "message": self.sentence}


class Column(Struct, frozen=True):
    """A column of `kubectl get`; a `wide` column is shown with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        """As an entry of additionalPrinterColumns."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


class CustomKind(Struct, frozen=True, kw_only=True):
    """A custom resource. `name_max` limits the length of names that are used as label values (63)."""

    resource: ResourceKind[Any]
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[ValidationRule, ...] = ()
    name_max: int | None = None


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_MESSAGE = Column("Message", ".status.message")


DECIDED_ONCE = (
    "self.stack == oldSelf.stack && self.group == oldSelf.group && self.node == oldSelf.node && "
    "self.reason == oldSelf.reason && self.attempt == oldSelf.attempt && self.source == oldSelf.source && "
    "self.target == oldSelf.target && has(self.plan) == has(oldSelf.plan) && "
    "(!has(self.plan) || self.plan == oldSelf.plan) && has(self.takesOver) == has(oldSelf.takesOver) && "
    "(!has(self.takesOver) || self.takesOver == oldSelf.takesOver) && has(self.reboot) == has(oldSelf.reboot) && "
    "(!has(self.reboot) || self.reboot == oldSelf.reboot) && self.limits == oldSelf.limits"
)
IDENTITY_STAYS = (
    "self.vendor == oldSelf.vendor && self.version == oldSelf.version && self.kernel == oldSelf.kernel && "
    "(!has(oldSelf.recipe) || (has(self.recipe) && self.recipe == oldSelf.recipe)) && "
    "(!has(oldSelf.flavour) || (has(self.flavour) && self.flavour == oldSelf.flavour)) && "
    "(!has(oldSelf.os) || (has(self.os) && self.os == oldSelf.os)) && self.arch == oldSelf.arch"
)
FORCE_GROWS = "!has(oldSelf.force) || (has(self.force) && oldSelf.force.all(one, one in self.force))"


def _immutable_rule(path: str, sentence: str) -> ValidationRule:
    return ValidationRule(path, "self == oldSelf", sentence)


def _operand_column(name: str, operand: Operand) -> Column:
    return Column(name, f'.status.operands[?(@.operand=="{operand.value}")].shown')


KINDS: tuple[CustomKind, ...] = (
    CustomKind(
        resource=r.GPU_STACKS,
        short_names=("gst",),
        name_max=63,
        columns=(
            Column("Revision", ".status.updateRevision"),
            Column("Ready", ".status.ready", "integer"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Drifted", ".status.drifted", "integer"),
            Column("Plan", ".status.activePlan"),
            Column("Version", ".spec.driver.version"),
            _operand_column("Driver", Operand.DRIVER),
            _operand_column("Runtime", Operand.RUNTIME),
            _operand_column("Plugin", Operand.DEVICE_PLUGIN),
            _operand_column("Discovery", Operand.FEATURE_DISCOVERY),
            _operand_column("Monitoring", Operand.MONITORING),
            Column("Labeller", ".status.nodeFeatures.shown"),
            Column("Kubelet", ".spec.kubelet.version", wide=True),
            Column("Blocked", ".status.blockedRevision", wide=True),
            _AGE,
        ),
        rules=(
            ValidationRule(
                "spec.driver",
                "!has(self.recipe) || self.vendor != 'nvidia' || self.recipe in ['nvidia', 'nvidia-open']",
                "vendor nvidia supports only the recipes nvidia-open and nvidia",
            ),
            ValidationRule(
                "spec.driver",
                "!has(self.flavour) || !has(self.recipe) || !(self.recipe in ['nvidia', 'nvidia-open']) "
                "|| (self.recipe == 'nvidia-open' && self.flavour == 'open') "
                "|| (self.recipe == 'nvidia' && self.flavour == 'proprietary')",
                "recipe nvidia-open has the flavour open, recipe nvidia has the flavour proprietary: omit flavour",
            ),
            ValidationRule(
                "spec.devicePlugin.sharing",
                "!has(self.mps) || !has(self.timeSlices)",
                sharing.BOTH,
            ),
            ValidationRule(
                "spec.devicePlugin.sharing",
                "!has(self.mps) || !has(self.migStrategy)",
                sharing.PARTITIONS,
            ),
            ValidationRule(
                "spec.devicePlugin",
                f"self.resourceName == '{sharing.MPS_RESOURCE}' || !has(self.sharing) || !has(self.sharing.mps)",
                sharing.OTHER_RESOURCE,
            ),
            *(
                ValidationRule(
                    f"spec.{name}",
                    "self.management == 'External' || has(self.image)",
                    "management Managed requires image",
                )
                for name in ("runtime", "devicePlugin", "featureDiscovery", "monitoring")
            ),
            ValidationRule(
                "spec.validation",
                "!has(self.runtimeClass) || has(self.workloadImage) || has(self.allReduce) || has(self.diagnostics)",
                "runtimeClass requires workloadImage, allReduce or diagnostics",
            ),
            ValidationRule(
                "spec.driver.parameters",
                f"self.all(name, size(name) <= 80 && name.matches('{PARAMETER_NAME}'))",
                "the name of a parameter must be module.parameter with at most 80 characters, for example "
                "nvidia.NVreg_EnableGpuFirmware",
            ),
            ValidationRule(
                "spec.driver.parameters",
                "self.map(name, size(name) + size(self[name])).sum() <= 1800",
                "names and values of all parameters must have at most 1800 characters together",
            ),
            ValidationRule(
                "spec.kubelet",
                "!self.manage || (has(self.version) && has(self.artifact))",
                "manage requires version and artifact (the image that contains the kubelet binary)",
            ),
            ValidationRule(
                "spec.kubelet.settings",
                "!has(self.cpuManagerPolicy) || self.cpuManagerPolicy != 'static' || has(self.reservedCpus)",
                "cpuManagerPolicy static requires reservedCpus",
            ),
            ValidationRule(
                "spec.kubelet.settings",
                "!has(self.topologyManagerScope) || has(self.topologyManagerPolicy)",
                "topologyManagerScope requires topologyManagerPolicy",
            ),
            ValidationRule(
                "spec.reboot",
                "self.select[0].startsWith('/') && self.restart[0].startsWith('/')",
                "select and restart must start with the absolute path of a program on the node",
            ),
            ValidationRule(
                "spec.limits",
                f"self.upgradingSeconds >= self.driverUnloadSeconds + {UNLOAD_MARGIN_SECONDS}",
                f"upgradingSeconds must be at least {UNLOAD_MARGIN_SECONDS} more than driverUnloadSeconds, "
                "which is a part of it",
            ),
            ValidationRule(
                "spec",
                f"!has(self.reboot) || self.limits.upgradingSeconds >= self.reboot.settleSeconds + "
                f"{UNLOAD_MARGIN_SECONDS}",
                f"limits.upgradingSeconds must be at least {UNLOAD_MARGIN_SECONDS} more than reboot.settleSeconds, "
                "which is a part of it",
            ),
            ValidationRule(
                "spec",
                "self.driver.onUnloadFailure != 'Reboot' || has(self.reboot)",
                "driver.onUnloadFailure Reboot requires reboot, whose commands reboot the node",
            ),
            ValidationRule(
                "spec",
                "self.driver.onUnloadFailure != 'Reboot' || "
                f"self.limits.upgradingSeconds >= self.limits.driverUnloadSeconds + {REBOOT_MARGIN_SECONDS}",
                f"with driver.onUnloadFailure Reboot, limits.upgradingSeconds must be at least {REBOOT_MARGIN_SECONDS} "
                "more than limits.driverUnloadSeconds, for the reboot",
            ),
            ValidationRule(
                "spec.gangs",
                "self.all(one, has(one.label) != has(one.regex))",
                "a gang rule requires exactly one of label and regex",
            ),
        ),
    ),
    CustomKind(
        resource=r.UPGRADE_PLANS,
        short_names=("uplan",),
        name_max=63,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Stack", ".spec.stack"),
            Column("Revision", ".spec.targetRevision"),
            Column("Succeeded", ".status.counts.succeeded", "integer"),
            Column("Nodes", ".status.counts.nodes", "integer"),
            Column("Failed", ".status.counts.failed", "integer", wide=True),
            Column("State", ".spec.state", wide=True),
            _MESSAGE,
            _AGE,
        ),
        rules=(
            _immutable_rule("spec.stack", "spec.stack is immutable: create another plan"),
            _immutable_rule("spec.targetRevision", "spec.targetRevision is immutable: create another plan"),
            ValidationRule(
                "spec.state",
                "!(oldSelf in ['Aborted', 'RolledBack']) || self in ['Aborted', 'RolledBack']",
                "an aborted or rolled back plan cannot be resumed: create another plan",
            ),
            ValidationRule(
                "spec.strategy.maxUnavailable",
                "type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",
                "maxUnavailable must be a number of GPUs (at least 1) or a percentage from 1% to 100%; to "
                "pause a plan, set state to Paused",
            ),
        ),
    ),
    CustomKind(
        resource=r.NODE_UPGRADES,
        short_names=("nup",),
        columns=(
            Column("Node", ".spec.node.name"),
            Column("Reason", ".spec.reason"),
            Column("Phase", ".status.phase"),
            Column("Until", ".status.deadline"),
            _MESSAGE,
            Column("Plan", ".spec.plan", wide=True),
            Column("UpgradeGroup", ".spec.group", wide=True),
            _AGE,
        ),
        rules=(
            ValidationRule("spec", DECIDED_ONCE, "the spec of a NodeUpgrade is immutable, except force"),
            ValidationRule("spec", FORCE_GROWS, "entries of force can be added, but not changed or removed"),
        ),
    ),
    CustomKind(
        resource=r.CHECKPOINT_REQUESTS,
        short_names=("ckreq",),
        columns=(
            Column("Gang", ".spec.gang"),
            Column("Phase", ".status.phase"),
            Column("Step", ".status.acknowledgedStep", "integer"),
            _MESSAGE,
            Column("Until", ".status.deadline", wide=True),
            Column("Plan", ".spec.plan", wide=True),
            _AGE,
        ),
        rules=(
            _immutable_rule("spec.gang", "spec.gang is immutable: create another CheckpointRequest"),
            _immutable_rule("spec.owner", "spec.owner is immutable: create another CheckpointRequest"),
            ValidationRule(
                "spec.requestId",
                "self >= oldSelf",
                "requestId must not decrease: an acknowledgement of an earlier request would become valid",
            ),
        ),
    ),
    CustomKind(
        resource=r.DRIVER_IMAGES,
        short_names=("dimg",),
        columns=(
            Column("Driver", ".spec.version"),
            Column("Kernel", ".spec.kernel"),
            Column("Phase", ".status.phase"),
            Column("Verified", '.status.conditions[?(@.type=="Verified")].status'),
            Column("Digest", ".status.digest"),
            Column("Message", ".status.message", wide=True),
            _AGE,
        ),
        rules=(
            ValidationRule(
                "spec",
                "has(self.image) || (has(self.recipe) && has(self.os))",
                "requires image (a prebuilt image), or both recipe and os (the image is looked up, and built "
                "if it does not exist)",
            ),
            ValidationRule(
                "spec",
                "!has(self.recipe) || self.vendor != 'nvidia' || has(self.flavour)",
                "recipe of vendor nvidia requires flavour (open or proprietary)",
            ),
            ValidationRule(
                "spec",
                IDENTITY_STAYS,
                "vendor, version, kernel, recipe, flavour, os and arch are immutable: create another DriverImage",
            ),
            ValidationRule(
                "",
                "!has(oldSelf.status) || !has(oldSelf.status.digest) || "
                "(has(self.spec.image) == has(oldSelf.spec.image) && "
                "(!has(self.spec.image) || self.spec.image == oldSelf.spec.image))",
                "image is immutable after it was resolved to a digest: create another DriverImage",
            ),
        ),
    ),
)
