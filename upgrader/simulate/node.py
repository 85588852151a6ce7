"""A simulated node: its labels and taints, and the jobs on it."""

from dataclasses import dataclass, field
from datetime import datetime

from upgrader.core.forecast.canaries import MODEL_LABEL
from upgrader.core.model.fleet import NodeFacts
from upgrader.simulate import stack
from upgrader.simulate.fleets.fleet import FleetNode


@dataclass(kw_only=True)
class SimulatedNode:
    """Changed only with `change`, so that cached facts are never stale."""

    spec: FleetNode
    uid: str
    ready: bool = True
    cordoned: bool = False
    driver_key: str = ""
    operands: str = "on"
    revision: str = ""
    claimed_by: str = ""
    released_by: str = ""
    maintenance: str = ""
    closed_at: datetime | None = None
    reserved: bool = False
    """A soft mark: new pods prefer other nodes."""
    used: dict[str, int] = field(default_factory=dict)
    """GPUs by the name of their job."""
    _facts: NodeFacts | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def free(self) -> int:
        """GPUs that new pods can get."""
        return self.spec.gpus - sum(self.used.values()) if self.operands == "on" else 0

    @property
    def in_service(self) -> bool:
        """Whether the scheduler places new pods on it; taints are checked separately."""
        return self.ready and not self.cordoned and self.operands == "on"

    def set_fields(self, **node_facts: str | bool | datetime | None) -> None:
        """Set fields."""
        for name, value in node_facts.items():
            setattr(self, name, value)
        self._facts = None

    def node_facts(self) -> NodeFacts:
        """The facts that the controller reads."""
        if self._facts is None:
            gpus = self.spec.gpus if self.operands == "on" else 0
            self._facts = NodeFacts(
                name=self.spec.name,
                uid=self.uid,
                kernel=self.spec.kernel,
                kubelet_version="1.36.0",
                boot_id=f"boot-{self.uid}",
                gpus=gpus,
                gpus_allocatable=gpus,
                ready=self.ready,
                unschedulable=self.cordoned,
                driver_key=self.driver_key,
                plugin_key=stack.PLUGIN_KEY,
                operands=self.operands,
                revision=self.revision,
                maintenance=self.maintenance,
                closed_at=self.closed_at,
                claimed_by=self.claimed_by,
                released_by=self.released_by,
                labels={"rack": self.spec.rack, MODEL_LABEL: self.spec.model},
            )
        return self._facts


def make_node(spec: FleetNode, uid: str) -> SimulatedNode:
    """A node in service on the old revision."""
    key = stack.make_image(stack.OLD, spec.kernel).key
    return SimulatedNode(spec=spec, uid=uid, driver_key=key, revision=stack.make_target(stack.OLD).revision)
