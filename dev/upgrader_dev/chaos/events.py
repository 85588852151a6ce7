"""Events of nodes, gangs and pods during a rollout that the controller does not cause."""

from collections.abc import Callable, Mapping
from functools import partial

from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PDBS, PODS
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault, Rates
from upgrader_dev.chaos.fleets import KERNELS, ChaosFleetSpec
from upgrader_dev.chaos.gangs import JOB, OF_JOBS, STATEFUL_SET, GangSpec, put_gang
from upgrader_dev.chaos.laws.cluster_state import read_stop_record
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import STATEFULSETS
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig
from upgrader_dev.simulated.cluster.trainers import Trainer

EVERYWHERE = [{"operator": "Exists"}]
KERNEL_LABEL = "feature.node.kubernetes.io/kernel-version.full"
SHORT_DISTURBANCE, LONGEST_DISTURBANCE = 600, 3600
LASTING_PART = 0.2
"""Part of the malformed annotations that stay malformed for longer than any phase of a node upgrade."""
NODE_POD_FAILURES = 0.3
"""Part of the node pods that fail in a run with such failures, before the rate of the run applies."""


class Events:
    """All events of nodes, gangs and pods."""

    def __init__(self, rig: Rig, fleet: ChaosFleetSpec, draws: Draws) -> None:
        self._rig, self._fleet, self._draws = rig, fleet, draws
        self._store, self._clock = rig.cluster.store, rig.cluster.clock
        self._pods = 0
        self._hanging, self._lasting = draws.stream_for("hanging"), draws.stream_for("lasting oddities")
        self.disturbances = 0
        """Temporary disturbances of nodes that are not over: malformed annotations, and cordons of users."""
        self._replaced_values: dict[tuple[str, str], list[str | None]] = {}
        """Values that malformed annotations replaced, by node and key; one value for each disturbance."""
        self.actions: Mapping[Fault, Callable[[], None]] = {
            Fault.WATCH_CUT: rig.cluster.watches.cut,
            Fault.WATCH_STALE: self._stall_watches,
            Fault.HISTORY_GONE: self._compact_history,
            Fault.NODE_DOWN: self._take_node_down,
            Fault.NODE_LOST: self._delete_node,
            Fault.LABEL_FLAPS: self._flap_label,
            Fault.CORDON: self._cordon_node,
            Fault.MALFORMED_NODE: self._malform_annotation,
            Fault.POD_APPEARS: partial(self._add_pod, tolerant=False),
            Fault.TOLERANT_POD: partial(self._add_pod, tolerant=True),
            Fault.GANG_GROWS: partial(self._resize_gang, 1),
            Fault.GANG_SHRINKS: partial(self._resize_gang, -1),
            Fault.GANG_ENDS: self._complete_gang,
            Fault.GANG_RESTARTS: self._fail_member,
            Fault.GANG_REPLACED: self._replace_gang,
            Fault.PDB_TIGHTENS: self._tighten_budget,
        }

    def fail_node_pods(self, rates: Rates) -> None:
        """Set how often node pods fail or hang in this run."""
        rate = NODE_POD_FAILURES * rates.rate_of(Fault.NODE_POD_FAILS) * 20
        failure = OrderResult(reason=Reason.MISSING, message="the machine failed")
        self._rig.fleet.pod_results = lambda _component, _pod: failure if self._draws.is_hit(rate) else None
        hanging: dict[str, bool] = {}
        hangs = NODE_POD_FAILURES * rates.rate_of(Fault.UPGRADE_HANGS) * 20
        self._rig.fleet.hangs = lambda pod: hanging.setdefault(pod["metadata"]["uid"], self._hanging.is_hit(hangs))

    # ---- watches

    def _stall_watches(self) -> None:
        self._rig.cluster.watches.stalled = True
        self._clock.later(self._draws.draw_number(10, 200), self.resume_watches)

    def resume_watches(self) -> None:
        """Watches deliver changes again."""
        self._rig.cluster.watches.stalled = False
        self._rig.cluster.watches.wake()

    def _compact_history(self) -> None:
        self._store.history.compact()
        self._rig.cluster.watches.cut()

    # ---- nodes

    def _draw_node(self) -> str:
        return f"gpu-{self._draws.draw_number(0, self._fleet.nodes - 1)}"

    def _take_node_down(self) -> None:
        name = self._draw_node()
        self._set_ready(name, ready=False)
        self._clock.later(self._draws.draw_number(20, 600), partial(self._set_ready, name, ready=True))

    def _set_ready(self, name: str, *, ready: bool) -> None:
        if self._store.find_stored(NODES, name) is None:
            return
        (self._rig.fleet.down.discard if ready else self._rig.fleet.down.add)(name)
        condition = {"type": "Ready", "status": str(ready)}
        self._store.change(NODES, name, {"status": {"conditions": [condition]}})

    def _delete_node(self) -> None:
        name = self._draw_node()
        if self._store.find_stored(NODES, name) is None:
            return
        for pod in self._store.pods_on_node(name):
            self._store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        self._store.remove(NODES, name)
        self._clock.later(self._draws.draw_number(20, 600), partial(self._rejoin_node, name))

    def _rejoin_node(self, name: str) -> None:
        if self._store.find_stored(NODES, name) is None:
            self._rig.fleet.down.discard(name)
            home = self._fleet.rollouts.pool_of(name)
            self._rig.fleet.add_node(name, kernel=self._draws.draw_choice(self._fleet.kernels), pool=home)

    def _flap_label(self) -> None:
        name = self._draw_node()
        node = self._store.find_stored(NODES, name)
        if node is None:
            return
        key, odd = self._draws.draw_choice([("pool", None), ("pool", "b"), (KERNEL_LABEL, KERNELS[-1])])
        before = node.value["metadata"]["labels"].get(key)
        self._set_label(name, key, odd)
        home = self._fleet.rollouts.pool_of(name)
        self._clock.later(
            self._draws.draw_number(1, 20), partial(self._set_label, name, key, home if key == "pool" else before)
        )

    def move_node_for_a_while(self) -> None:
        """A node belongs to another pool for longer than a restart of the controller takes."""
        name = self._draw_node()
        self._set_label(name, "pool", "b")
        self._clock.later(
            self._draws.draw_number(30, 120), partial(self._set_label, name, "pool", self._fleet.rollouts.pool_of(name))
        )

    def _set_label(self, name: str, key: str, value: str | None) -> None:
        if self._store.find_stored(NODES, name) is not None:
            self._store.change(NODES, name, {"metadata": {"labels": {key: value}}})

    def _malform_annotation(self) -> None:
        name, key = (
            self._draw_node(),
            self._draws.draw_choice([names.ANNOTATION_KUBELET, names.ANNOTATION_NODE_FEATURES]),
        )
        if self._store.find_stored(NODES, name) is None:
            return
        # An annotation that is malformed already keeps its first value, which returns when the last disturbance ends.
        before = self._store.read(NODES, name)["metadata"].get("annotations", {}).get(key)
        self._replaced_values.setdefault((name, key), []).append(before)
        self._set_annotation(name, key, self._draws.draw_choice(["not json", "[" * 3000, "{}", "7"]))
        self.disturbances += 1
        seconds = self._draws.draw_number(20, SHORT_DISTURBANCE)
        if self._lasting.is_hit(LASTING_PART):
            seconds = self._lasting.draw_number(SHORT_DISTURBANCE, LONGEST_DISTURBANCE)
        self._clock.later(seconds, partial(self._restore_annotation, name, key))

    def _restore_annotation(self, name: str, key: str) -> None:
        self.disturbances -= 1
        before = self._replaced_values[name, key]
        if len(before) > 1:
            before.pop()
            return
        self._set_annotation(name, key, self._replaced_values.pop((name, key))[0])

    def _set_annotation(self, name: str, key: str, value: str | None) -> None:
        if self._store.find_stored(NODES, name) is not None:
            self._store.change(NODES, name, {"metadata": {"annotations": {key: value}}})

    def _cordon_node(self) -> None:
        name = self._draw_node()
        if self._store.find_stored(NODES, name) is not None:
            self._set_unschedulable(name, value=True)
            self.disturbances += 1
            self._clock.later(self._draws.draw_number(20, SHORT_DISTURBANCE), partial(self._uncordon_node, name))

    def _uncordon_node(self, name: str) -> None:
        self.disturbances -= 1
        self._set_unschedulable(name, value=None)

    def _set_unschedulable(self, name: str, *, value: bool | None) -> None:
        if self._store.find_stored(NODES, name) is not None:
            self._store.change(NODES, name, {"spec": {"unschedulable": value}})

    # ---- pods

    def _add_pod(self, *, tolerant: bool) -> None:
        self._pods += 1
        name = f"late-{self._pods}"
        if self._draws.is_hit(0.5):
            gang = GangSpec(name=name, kind="Job", members=1, gpus=self._draws.draw_choice([1, 2]), method="file")
            put_gang(self._rig, gang, tolerations=EVERYWHERE if tolerant else [])
            lasts = self._draws.draw_number(60, 900)
            self._clock.later(lasts, partial(self._complete_job, name))
            return
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{name}", "controller": True}
        limits = {"limits": {RESOURCE: str(self._draws.draw_choice([0, 1, 2]))}}
        body: Object = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "web", "resources": limits}]},
            "status": {"phase": "Pending"},
        }
        if self._draws.is_hit(0.5):
            body["metadata"]["ownerReferences"] = [owner]
        if tolerant:
            body["spec"]["tolerations"] = EVERYWHERE
        self._store.put(PODS, body)
        self._clock.later(self._draws.draw_number(60, 900), partial(self._complete_pod, name))

    def _complete_pod(self, name: str) -> None:
        pod = self._store.find_stored(PODS, name, "default")
        if pod is not None:
            self._store.change(PODS, name, {"status": {"phase": "Succeeded"}}, "default")

    # ---- gangs

    def _draw_gang(self, kinds: frozenset[str] = frozenset({JOB, STATEFUL_SET})) -> GangSpec | None:
        gangs = [gang for gang in self._fleet.gangs if gang.kind in kinds]
        return self._draws.draw_choice(gangs) if gangs else None

    def _resize_gang(self, by: int) -> None:
        gang = self._draw_gang()
        if gang is None:
            return
        kind, field = (STATEFULSETS, "replicas") if gang.kind == STATEFUL_SET else (JOBS, "parallelism")
        owner = self._store.find_stored(kind, gang.name, "default")
        if owner is None or read_stop_record(owner.value) is not None:
            return
        size = owner.value["spec"][field] + by
        if not 1 <= size <= self._fleet.nodes:
            return
        sizes = {"replicas": size} if gang.kind == STATEFUL_SET else {"parallelism": size, "completions": size}
        self._store.change(kind, gang.name, {"spec": sizes}, "default")
        for pod in self._store.list_owned(PODS, owner.value["metadata"]["uid"]):
            labels = pod["metadata"].get("labels", {})
            if int(labels.get("index", 0)) >= size and not pod["metadata"].get("deletionTimestamp"):
                self._store.mark_deleted(PODS, pod["metadata"]["name"], "default")

    def _complete_gang(self) -> None:
        gang = self._draw_gang(OF_JOBS)
        if gang is not None:
            self._complete_job(gang.pod_owner)

    def _complete_job(self, name: str) -> None:
        owner = self._store.find_stored(JOBS, name, "default")
        if owner is None or owner.value["spec"].get("suspend"):
            return
        pods = self._store.list_owned(PODS, owner.value["metadata"]["uid"])
        if pods and all(pod["status"].get("phase") == "Running" for pod in pods):
            for pod in pods:
                self._store.change(PODS, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default")

    def _fail_member(self) -> None:
        gang = self._draw_gang(OF_JOBS)
        owner = self._store.find_stored(JOBS, gang.pod_owner, "default") if gang is not None else None
        if owner is None:
            return
        pods = [
            pod
            for pod in self._store.list_owned(PODS, owner.value["metadata"]["uid"])
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        if pods:
            name = self._draws.draw_choice(pods)["metadata"]["name"]
            self._store.change(PODS, name, {"status": {"phase": "Failed"}}, "default")

    def _replace_gang(self) -> None:
        gang = self._draw_gang(OF_JOBS)
        if gang is None or self._store.find_stored(gang.applied_kind, gang.name, "default") is None:
            return
        self._store.mark_deleted(gang.applied_kind, gang.name, "default")
        self._rig.fleet.trainers[gang.pod_owner] = Trainer()
        self._clock.later(self._draws.draw_number(1, 60), partial(self._put_gang_again, gang))

    def _put_gang_again(self, gang: GangSpec) -> None:
        if self._store.find_stored(gang.applied_kind, gang.name, "default") is None:
            put_gang(self._rig, gang)

    def _tighten_budget(self) -> None:
        budget = {
            "metadata": {"name": "tight", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {}}},
            "status": {"disruptionsAllowed": 0},
        }
        self._store.put(PDBS, budget)
        self._clock.later(self._draws.draw_number(20, 900), self.loosen_budget)

    def loosen_budget(self) -> None:
        """No PodDisruptionBudget prevents evictions."""
        if self._store.find_stored(PDBS, "tight", "default") is not None:
            self._store.remove(PDBS, "tight", "default")

    def end_disturbances(self) -> None:
        """Nodes are ready, watches deliver changes, and evictions are allowed."""
        self.resume_watches()
        self.loosen_budget()
        for number in range(self._fleet.nodes):
            name = f"gpu-{number}"
            self._rejoin_node(name)
            self._set_ready(name, ready=True)
            self._set_label(name, "pool", self._fleet.rollouts.pool_of(name))
            self._set_unschedulable(name, value=None)
