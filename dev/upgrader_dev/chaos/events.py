"""What happens to nodes, gangs and pods while a rollout is under way, none of it the controller's doing."""

from collections.abc import Callable, Mapping
from functools import partial

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PDBS, PODS
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault, Rates
from upgrader_dev.chaos.fleets import KERNELS, FleetSpec
from upgrader_dev.chaos.gangs import JOB, OF_JOBS, STATEFUL_SET, GangSpec, put_gang
from upgrader_dev.chaos.laws.known import stopped_by
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import STATEFULSETS
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig
from upgrader_dev.simulated.cluster.trainers import Trainer

EVERYWHERE = [{"operator": "Exists"}]
KERNEL_LABEL = "feature.node.kubernetes.io/kernel-version.full"
SHORT_ODDITY, LONGEST_ODDITY = 600, 3600
LASTING = 0.2
"""Part of the annotations that nobody can read which stay so for longer than any phase of a node upgrade."""
NODE_POD_FAILURES = 0.3
"""Part of the node pods that fail in a run that has such failures, before its rate."""


class Events:
    """Everything that may happen to nodes, gangs and pods."""

    def __init__(self, rig: Rig, fleet: FleetSpec, draws: Draws) -> None:
        self._rig, self._fleet, self._draws = rig, fleet, draws
        self._store, self._clock = rig.cluster.store, rig.cluster.clock
        self._pods = 0
        self._hanging, self._lasting = draws.of("hanging"), draws.of("lasting oddities")
        self.oddities = 0
        """What is odd about nodes for a while: annotations that nobody can read, and cordons of people."""
        self._odd_now: dict[tuple[str, str], list[str | None]] = {}
        """What odd annotations were, by node and key: one value for each oddity that has not ended."""
        self.happening: Mapping[Fault, Callable[[], None]] = {
            Fault.WATCH_CUT: rig.cluster.watches.cut,
            Fault.WATCH_STALE: self._stale,
            Fault.HISTORY_GONE: self._compacted,
            Fault.NODE_DOWN: self._down,
            Fault.NODE_LOST: self._lost,
            Fault.LABEL_FLAPS: self._flaps,
            Fault.CORDON: self._cordon,
            Fault.ODD_NODE: self._odd,
            Fault.POD_APPEARS: partial(self._appears, tolerant=False),
            Fault.TOLERANT_POD: partial(self._appears, tolerant=True),
            Fault.GANG_GROWS: partial(self._resized, 1),
            Fault.GANG_SHRINKS: partial(self._resized, -1),
            Fault.GANG_ENDS: self._ends,
            Fault.GANG_RESTARTS: self._restarts,
            Fault.GANG_REPLACED: self._replaced,
            Fault.PDB_TIGHTENS: self._tightens,
        }

    def fail_node_pods(self, rates: Rates) -> None:
        """Let node pods fail in this run, or not."""
        rate = NODE_POD_FAILURES * rates.at(Fault.NODE_POD_FAILS) * 20
        failure = OrderResult(reason=Reason.MISSING, message="the machine has had enough")
        self._rig.fleet.pod_results = lambda _component, _pod: failure if self._draws.happens(rate) else None
        hanging: dict[str, bool] = {}
        hangs = NODE_POD_FAILURES * rates.at(Fault.UPGRADE_HANGS) * 20
        self._rig.fleet.hangs = lambda pod: hanging.setdefault(pod["metadata"]["uid"], self._hanging.happens(hangs))

    # ---- watches

    def _stale(self) -> None:
        self._rig.cluster.watches.stalled = True
        self._clock.later(self._draws.number(10, 200), self.fresh)

    def fresh(self) -> None:
        """Watches bring what there is again."""
        self._rig.cluster.watches.stalled = False
        self._rig.cluster.watches.wake()

    def _compacted(self) -> None:
        self._store.history.compact()
        self._rig.cluster.watches.cut()

    # ---- nodes

    def _node(self) -> str:
        return f"gpu-{self._draws.number(0, self._fleet.nodes - 1)}"

    def _down(self) -> None:
        name = self._node()
        self._ready(name, ready=False)
        self._clock.later(self._draws.number(20, 600), partial(self._ready, name, ready=True))

    def _ready(self, name: str, *, ready: bool) -> None:
        if self._store.stored(NODES, name) is None:
            return
        (self._rig.fleet.down.discard if ready else self._rig.fleet.down.add)(name)
        condition = {"type": "Ready", "status": str(ready)}
        self._store.change(NODES, name, {"status": {"conditions": [condition]}})

    def _lost(self) -> None:
        name = self._node()
        if self._store.stored(NODES, name) is None:
            return
        for pod in self._store.on_node(name):
            self._store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        self._store.remove(NODES, name)
        self._clock.later(self._draws.number(20, 600), partial(self._joins, name))

    def _joins(self, name: str) -> None:
        if self._store.stored(NODES, name) is None:
            self._rig.fleet.down.discard(name)
            home = self._fleet.rollouts.home(name)
            self._rig.fleet.node(name, kernel=self._draws.among(self._fleet.kernels), pool=home)

    def _flaps(self) -> None:
        name = self._node()
        node = self._store.stored(NODES, name)
        if node is None:
            return
        key, odd = self._draws.among([("pool", None), ("pool", "b"), (KERNEL_LABEL, KERNELS[-1])])
        before = node.value["metadata"]["labels"].get(key)
        self._label(name, key, odd)
        home = self._fleet.rollouts.home(name)
        self._clock.later(self._draws.number(1, 20), partial(self._label, name, key, home if key == "pool" else before))

    def stray(self) -> None:
        """A node is of another pool for longer than a controller takes to come back."""
        name = self._node()
        self._label(name, "pool", "b")
        self._clock.later(
            self._draws.number(30, 120), partial(self._label, name, "pool", self._fleet.rollouts.home(name))
        )

    def _label(self, name: str, key: str, value: str | None) -> None:
        if self._store.stored(NODES, name) is not None:
            self._store.change(NODES, name, {"metadata": {"labels": {key: value}}})

    def _odd(self) -> None:
        name, key = self._node(), self._draws.among([names.ANNOTATION_KUBELET, names.ANNOTATION_NODE_FEATURES])
        if self._store.stored(NODES, name) is None:
            return
        # What is odd already keeps what it was before: that is what comes back when the last oddity ends.
        before = self._store.read(NODES, name)["metadata"].get("annotations", {}).get(key)
        self._odd_now.setdefault((name, key), []).append(before)
        self._annotate(name, key, self._draws.among(["not json", "[" * 3000, "{}", "7"]))
        self.oddities += 1
        seconds = self._draws.number(20, SHORT_ODDITY)
        if self._lasting.happens(LASTING):
            seconds = self._lasting.number(SHORT_ODDITY, LONGEST_ODDITY)
        self._clock.later(seconds, partial(self._even, name, key))

    def _even(self, name: str, key: str) -> None:
        self.oddities -= 1
        before = self._odd_now[name, key]
        if len(before) > 1:
            before.pop()
            return
        self._annotate(name, key, self._odd_now.pop((name, key))[0])

    def _annotate(self, name: str, key: str, value: str | None) -> None:
        if self._store.stored(NODES, name) is not None:
            self._store.change(NODES, name, {"metadata": {"annotations": {key: value}}})

    def _cordon(self) -> None:
        name = self._node()
        if self._store.stored(NODES, name) is not None:
            self._unschedulable(name, value=True)
            self.oddities += 1
            self._clock.later(self._draws.number(20, SHORT_ODDITY), partial(self._uncordon, name))

    def _uncordon(self, name: str) -> None:
        self.oddities -= 1
        self._unschedulable(name, value=None)

    def _unschedulable(self, name: str, *, value: bool | None) -> None:
        if self._store.stored(NODES, name) is not None:
            self._store.change(NODES, name, {"spec": {"unschedulable": value}})

    # ---- pods

    def _appears(self, *, tolerant: bool) -> None:
        self._pods += 1
        name = f"late-{self._pods}"
        if self._draws.happens(0.5):
            gang = GangSpec(name=name, kind="Job", members=1, gpus=self._draws.among([1, 2]), method="file")
            put_gang(self._rig, gang, tolerations=EVERYWHERE if tolerant else [])
            lasts = self._draws.number(60, 900)
            self._clock.later(lasts, partial(self._job_ends, name))
            return
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{name}", "controller": True}
        limits = {"limits": {RESOURCE: str(self._draws.among([0, 1, 2]))}}
        body: Object = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "web", "resources": limits}]},
            "status": {"phase": "Pending"},
        }
        if self._draws.happens(0.5):
            body["metadata"]["ownerReferences"] = [owner]
        if tolerant:
            body["spec"]["tolerations"] = EVERYWHERE
        self._store.put(PODS, body)
        self._clock.later(self._draws.number(60, 900), partial(self._pod_ends, name))

    def _pod_ends(self, name: str) -> None:
        pod = self._store.stored(PODS, name, "default")
        if pod is not None:
            self._store.change(PODS, name, {"status": {"phase": "Succeeded"}}, "default")

    # ---- gangs

    def _gang(self, kinds: frozenset[str] = frozenset({JOB, STATEFUL_SET})) -> GangSpec | None:
        gangs = [gang for gang in self._fleet.gangs if gang.kind in kinds]
        return self._draws.among(gangs) if gangs else None

    def _resized(self, by: int) -> None:
        gang = self._gang()
        if gang is None:
            return
        kind, field = (STATEFULSETS, "replicas") if gang.kind == STATEFUL_SET else (JOBS, "parallelism")
        owner = self._store.stored(kind, gang.name, "default")
        if owner is None or stopped_by(owner.value) is not None:
            return
        size = owner.value["spec"][field] + by
        if not 1 <= size <= self._fleet.nodes:
            return
        sizes = {"replicas": size} if gang.kind == STATEFUL_SET else {"parallelism": size, "completions": size}
        self._store.change(kind, gang.name, {"spec": sizes}, "default")
        for pod in self._store.owned(PODS, owner.value["metadata"]["uid"]):
            labels = pod["metadata"].get("labels", {})
            if int(labels.get("index", 0)) >= size and not pod["metadata"].get("deletionTimestamp"):
                self._store.mark_deleted(PODS, pod["metadata"]["name"], "default")

    def _ends(self) -> None:
        gang = self._gang(OF_JOBS)
        if gang is not None:
            self._job_ends(gang.maker)

    def _job_ends(self, name: str) -> None:
        owner = self._store.stored(JOBS, name, "default")
        if owner is None or owner.value["spec"].get("suspend"):
            return
        pods = self._store.owned(PODS, owner.value["metadata"]["uid"])
        if pods and all(pod["status"].get("phase") == "Running" for pod in pods):
            for pod in pods:
                self._store.change(PODS, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default")

    def _restarts(self) -> None:
        gang = self._gang(OF_JOBS)
        owner = self._store.stored(JOBS, gang.maker, "default") if gang is not None else None
        if owner is None:
            return
        pods = [
            pod
            for pod in self._store.owned(PODS, owner.value["metadata"]["uid"])
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        if pods:
            name = self._draws.among(pods)["metadata"]["name"]
            self._store.change(PODS, name, {"status": {"phase": "Failed"}}, "default")

    def _replaced(self) -> None:
        gang = self._gang(OF_JOBS)
        if gang is None or self._store.stored(gang.applied, gang.name, "default") is None:
            return
        self._store.mark_deleted(gang.applied, gang.name, "default")
        self._rig.fleet.trainers[gang.maker] = Trainer()
        self._clock.later(self._draws.number(1, 60), partial(self._again, gang))

    def _again(self, gang: GangSpec) -> None:
        if self._store.stored(gang.applied, gang.name, "default") is None:
            put_gang(self._rig, gang)

    def _tightens(self) -> None:
        budget = {
            "metadata": {"name": "tight", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {}}},
            "status": {"disruptionsAllowed": 0},
        }
        self._store.put(PDBS, budget)
        self._clock.later(self._draws.number(20, 900), self.loosen)

    def loosen(self) -> None:
        """No budget forbids evictions any more."""
        if self._store.stored(PDBS, "tight", "default") is not None:
            self._store.remove(PDBS, "tight", "default")

    def calm(self) -> None:
        """Nodes are up, watches flow, nothing is forbidden."""
        self.fresh()
        self.loosen()
        for number in range(self._fleet.nodes):
            name = f"gpu-{number}"
            self._joins(name)
            self._ready(name, ready=True)
            self._label(name, "pool", self._fleet.rollouts.home(name))
            self._unschedulable(name, value=None)
