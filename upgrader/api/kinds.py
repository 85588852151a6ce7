"""What a type of v1alpha1/ cannot say about its kind: short names, the columns of `kubectl get`, rules over fields.

Rules are CEL and are judged by the API server (tests/cluster/test_crds.py shows each refusing). `oldSelf` makes a rule
one for changes only. Their sentences are read by the person whose manifest was refused.
"""

from typing import Any

from msgspec import Struct

from upgrader.api import resources as r
from upgrader.api.resources import ResourceKind
from upgrader.core.model import sharing
from upgrader.core.model.operands import Operand


class Rule(Struct, frozen=True):
    """`cel` must hold for the value at `path` (dotted, as spec.kubelet; empty for the whole object)."""

    path: str
    cel: str
    sentence: str

    def manifest(self) -> dict[str, str]:
        """As an entry of x-kubernetes-validations."""
        return {"rule": self.cel, "message": self.sentence}


class Column(Struct, frozen=True):
    """A column of `kubectl get`; those with `wide` only with -o wide."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        """As an entry of additionalPrinterColumns."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


class CustomKind(Struct, frozen=True, kw_only=True):
    """One of our kinds. `name_max` bounds names that stand as values of labels (63) elsewhere."""

    resource: ResourceKind[Any]
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    name_max: int | None = None


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_MESSAGE = Column("Message", ".status.message")


DECIDED_ONCE = (
    "self.stack == oldSelf.stack && self.group == oldSelf.group && self.node == oldSelf.node && "
    "self.reason == oldSelf.reason && self.attempt == oldSelf.attempt && self.source == oldSelf.source && "
    "self.target == oldSelf.target && has(self.plan) == has(oldSelf.plan) && "
    "(!has(self.plan) || self.plan == oldSelf.plan) && has(self.takesOver) == has(oldSelf.takesOver) && "
    "(!has(self.takesOver) || self.takesOver == oldSelf.takesOver) && has(self.reboot) == has(oldSelf.reboot) && "
    "(!has(self.reboot) || self.reboot == oldSelf.reboot)"
)
IDENTITY_STAYS = (
    "self.vendor == oldSelf.vendor && self.version == oldSelf.version && self.kernel == oldSelf.kernel && "
    "(!has(oldSelf.recipe) || (has(self.recipe) && self.recipe == oldSelf.recipe)) && "
    "(!has(oldSelf.flavour) || (has(self.flavour) && self.flavour == oldSelf.flavour)) && "
    "(!has(oldSelf.os) || (has(self.os) && self.os == oldSelf.os)) && self.arch == oldSelf.arch"
)
FORCE_GROWS = "!has(oldSelf.force) || (has(self.force) && oldSelf.force.all(one, one in self.force))"


def _fixed(path: str, sentence: str) -> Rule:
    return Rule(path, "self == oldSelf", sentence)


def _operand(name: str, operand: Operand) -> Column:
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
            _operand("Driver", Operand.DRIVER),
            _operand("Runtime", Operand.RUNTIME),
            _operand("Plugin", Operand.DEVICE_PLUGIN),
            _operand("Discovery", Operand.FEATURE_DISCOVERY),
            _operand("Monitoring", Operand.MONITORING),
            Column("Labeller", ".status.nodeFeatures.shown"),
            Column("Kubelet", ".spec.kubelet.version", wide=True),
            Column("Blocked", ".status.blockedRevision", wide=True),
            _AGE,
        ),
        rules=(
            Rule(
                "spec.driver",
                "!has(self.recipe) || self.vendor != 'nvidia' || self.recipe.startsWith('nvidia')",
                "the operands of nvidia do not run on the simulated driver: name one of NVIDIA's recipes",
            ),
            Rule(
                "spec.driver",
                "!has(self.flavour) || has(self.recipe) || self.vendor == 'nvidia'",
                "the simulated driver has no flavours: name the recipe whose driver is loaded",
            ),
            Rule(
                "spec.driver",
                "!has(self.flavour) || !has(self.recipe) || (self.recipe == 'nvidia-open' && self.flavour == 'open') "
                "|| (self.recipe == 'nvidia' && self.flavour == 'proprietary')",
                "recipe nvidia-open makes flavour open, nvidia makes proprietary, sim has none: leave flavour out",
            ),
            Rule(
                "spec",
                "self.driver.vendor == 'nvidia' || !has(self.devicePlugin.sharing) || "
                "!has(self.devicePlugin.sharing.migStrategy)",
                "simulated GPUs have no partitions: leave migStrategy out",
            ),
            Rule(
                "spec",
                "self.driver.vendor == 'nvidia' || !has(self.devicePlugin.sharing) || "
                "!has(self.devicePlugin.sharing.mps)",
                sharing.SIMULATED,
            ),
            Rule(
                "spec.devicePlugin.sharing",
                "!has(self.mps) || !has(self.timeSlices)",
                sharing.BOTH,
            ),
            Rule(
                "spec.devicePlugin.sharing",
                "!has(self.mps) || !has(self.migStrategy)",
                sharing.PARTITIONS,
            ),
            Rule(
                "spec.devicePlugin",
                f"self.resourceName == '{sharing.MPS_RESOURCE}' || !has(self.sharing) || !has(self.sharing.mps)",
                sharing.OTHER_RESOURCE,
            ),
            *(
                Rule(f"spec.{name}", "self.management == 'External' || has(self.image)", "name the image to be run")
                for name in ("runtime", "devicePlugin", "featureDiscovery", "monitoring")
            ),
            Rule(
                "spec",
                "self.driver.vendor == 'nvidia' || !has(self.validation.workloadImage)",
                "on simulated GPUs our own program works: leave workloadImage out",
            ),
            Rule(
                "spec.validation",
                "!has(self.runtimeClass) || has(self.workloadImage)",
                "a RuntimeClass is of the workload: name its image too",
            ),
            Rule(
                "spec.kubelet",
                "!self.manage || (has(self.version) && has(self.artifact))",
                "a managed kubelet needs version and artifact (the image that carries the binary)",
            ),
            Rule(
                "spec.kubelet.settings",
                "!has(self.cpuManagerPolicy) || self.cpuManagerPolicy != 'static' || has(self.reservedCpus)",
                "the static policy needs some CPUs that are kept for the system: name them in reservedCpus",
            ),
            Rule(
                "spec.kubelet.settings",
                "!has(self.topologyManagerScope) || has(self.topologyManagerPolicy)",
                "a scope is of the topology manager: name its policy too",
            ),
            Rule(
                "spec.reboot",
                "self.select[0].startsWith('/') && self.restart[0].startsWith('/')",
                "programs on the node are named by their whole path",
            ),
            Rule(
                "spec.gangs",
                "self.all(one, has(one.label) != has(one.regex))",
                "a rule of who belongs together goes by label or by regex: name exactly one of them",
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
            _fixed("spec.stack", "a plan is for one stack: make another plan"),
            _fixed("spec.targetRevision", "a plan is for one revision: make another plan"),
            Rule(
                "spec.state",
                "!(oldSelf in ['Aborted', 'RolledBack']) || self in ['Aborted', 'RolledBack']",
                "an abort cannot be taken back: make another plan",
            ),
            Rule(
                "spec.strategy.maxUnavailable",
                "type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",
                "maxUnavailable is a number of GPUs from 1, or a percentage from 1% to 100%; to pause: state: Paused",
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
            Rule("spec", DECIDED_ONCE, "a node upgrade is decided once: nothing of its spec changes but force"),
            Rule("spec", FORCE_GROWS, "what was forced stays on record: force only grows"),
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
            _fixed("spec.gang", "a request is for one gang: make another request"),
            _fixed("spec.owner", "what is stopped stays what is restarted: make another request"),
            Rule(
                "spec.requestId",
                "self >= oldSelf",
                "requestId only grows, so that an old answer is never taken for a new one",
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
            Rule(
                "spec",
                "has(self.image) || (has(self.recipe) && has(self.os))",
                "name an image that you bring, or recipe and os, by which it is found or built",
            ),
            Rule(
                "spec",
                "!has(self.recipe) || self.vendor != 'nvidia' || has(self.flavour)",
                "NVIDIA's recipes have a flavour, open or proprietary: name it, or the image is not found",
            ),
            Rule(
                "spec",
                IDENTITY_STAYS,
                "the identity says which image this is and never changes: make another DriverImage",
            ),
            Rule(
                "",
                "!has(oldSelf.status) || !has(oldSelf.status.digest) || "
                "(has(self.spec.image) == has(oldSelf.spec.image) && "
                "(!has(self.spec.image) || self.spec.image == oldSelf.spec.image))",
                "image is pinned by its digest and never changes: make another DriverImage",
            ),
        ),
    ),
)
