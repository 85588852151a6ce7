"""Feature labels by a whole stack in virtual time: written once, for each boot, by one writer, and taken back."""

import json

import pytest

from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODE_FEATURES, NODES
from upgrader.core.errors import ClusterError, ConflictError
from upgrader.core.node_protocol.node_features import PREFIX
from upgrader_dev.simulated.cluster.readings import read_node_features
from upgrader_dev.simulated.cluster.rig import STACK, Rig

KERNEL, NEXT = "6.1.0-47-amd64", "6.12.94+deb13-amd64"
FULL = f"{PREFIX}kernel-version.full"
LABELS = {
    FULL: KERNEL,
    f"{PREFIX}kernel-version.major": "6",
    f"{PREFIX}kernel-version.minor": "1",
    f"{PREFIX}kernel-version.revision": "0",
    f"{PREFIX}system-os_release.ID": "debian",
    f"{PREFIX}system-os_release.VERSION_ID": "13",
    f"{PREFIX}system-os_release.VERSION_ID.major": "13",
    f"{PREFIX}pci-0302_10de.present": "true",
    f"{PREFIX}pci-10de.present": "true",
}
KEPT = {"nfd.node.kubernetes.io/feature-labels": "kernel-version.full"}
"""What NFD leaves on a Node."""


class Pool:
    """A rig whose stack labels."""

    def __init__(self, nodes: int = 1, *, image: bool = True) -> None:
        """Without an image no upgrade is ordered."""
        self.rig = Rig()
        for number in range(nodes):
            self.rig.fleet.add_node(f"gpu-{number}")
        if image:
            self.rig.put_image("1.0")
        self.ask("Auto")

    def ask(self, mode: str | None, stack: str = STACK) -> None:
        self.rig.apply_stack(self.rig.make_spec("1.0") | ({"nodeFeatures": mode} if mode else {}), stack)

    def node(self, name: str = "gpu-0") -> dict:
        return self.rig.cluster.store.find(NODES, name)

    def labels(self, name: str = "gpu-0") -> dict:
        return {k: v for k, v in self.node(name)["metadata"]["labels"].items() if k.startswith(PREFIX)}

    def record(self, name: str = "gpu-0") -> dict | None:
        text = self.node(name)["metadata"].get("annotations", {}).get(names.ANNOTATION_NODE_FEATURES)
        return None if text is None else json.loads(text)

    def annotate(self, marks: dict, name: str = "gpu-0") -> None:
        self.rig.cluster.store.change(NODES, name, {"metadata": {"annotations": marks}})

    def put_label(self, key: str, value: str | None, name: str = "gpu-0") -> None:
        self.rig.cluster.store.change(NODES, name, {"metadata": {"labels": {key: value}}})

    def reboot(self, kernel: str, boot: str, name: str = "gpu-0") -> None:
        status = {"nodeInfo": {"kernelVersion": kernel, "bootID": boot}}
        self.rig.cluster.store.change(NODES, name, {"status": status})

    def condition(self) -> tuple[str, str, str] | None:
        found = (one for one in self.rig.stack_now().status.conditions if one.type == "NodeFeatures")
        return next(((one.status, one.reason, one.message) for one in found), None)

    def daemonsets(self) -> list[dict]:
        every = self.rig.cluster.store.copy_all(DAEMONSETS)
        return [one for one in every if one["metadata"]["labels"][names.LABEL_COMPONENT] == "node-features"]

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            await self.rig.run_second()

    async def labelled(self) -> None:
        await self.rig.run_until(lambda: self.condition() is not None and self.condition()[1] == "Labelled")
        await self.rig.settle()
        await self.seconds(2)


@pytest.fixture
async def pool() -> Pool:
    made = Pool()
    await made.labelled()
    return made


async def test_a_stack_that_does_not_ask_writes_nothing_and_says_nothing() -> None:
    pool = Pool()
    pool.ask(None)
    await pool.rig.settle()
    assert (pool.labels(), pool.record(), pool.condition(), pool.daemonsets()) == ({}, None, None, [])


async def test_nodes_of_the_pool_are_labelled_and_others_are_not(pool: Pool) -> None:
    pool.rig.fleet.add_node("other", pool="b")
    await pool.seconds(5)
    assert pool.labels() == LABELS
    assert pool.record() == {"stack": STACK, "bootId": "boot-1-gpu-0", "labels": LABELS}
    assert pool.condition() == ("True", "Labelled", "nodes: 1 Labelled")
    assert (pool.labels("other"), pool.record("other")) == ({}, None)


async def test_with_nothing_new_nothing_is_written(pool: Pool) -> None:
    before = len(pool.rig.cluster.writes)
    await pool.seconds(60)
    pool.rig.restart()
    await pool.seconds(60)
    assert pool.rig.cluster.writes[before:] == []


async def test_another_node_image_changes_the_pods_and_no_node(pool: Pool) -> None:
    before, labels = len(pool.rig.cluster.writes), pool.labels()
    pool.rig.restart(node_image="registry/upgrader@sha256:" + "1" * 64)
    await pool.seconds(10)
    assert [(one.verb, one.kind) for one in pool.rig.cluster.writes[before:]] == [("apply", "DaemonSet")]
    assert pool.labels() == labels


async def test_a_node_is_labelled_in_one_write(pool: Pool) -> None:
    pool.rig.fleet.add_node("gpu-9")
    before = len(pool.rig.cluster.writes)
    await pool.rig.run_until(lambda: pool.labels("gpu-9") == LABELS)
    merges = [one for one in pool.rig.cluster.writes[before:] if (one.verb, one.name) == ("merge", "gpu-9")]
    assert len(merges) == 1


async def test_after_a_reboot_old_labels_are_known_as_such_until_the_new_ones_are_there(pool: Pool) -> None:
    said = read_node_features(pool.node())
    pool.rig.fleet.features = lambda _: said
    pool.reboot(NEXT, "boot-2")
    await pool.seconds(3)
    assert pool.labels()[FULL] == KERNEL
    waits = "nodes: 1 WaitingForReport; gpu-0: its pod has not reported yet"
    assert pool.condition() == ("False", "WaitingForReport", waits)
    pool.rig.fleet.features = read_node_features
    await pool.rig.run_until(lambda: pool.labels()[FULL] == "6.12.94_deb13-amd64", 10)
    assert pool.record()["bootId"] == "boot-2"
    assert f"{PREFIX}kernel-version.major" not in pool.labels()
    await pool.seconds(2)
    assert pool.condition() == ("True", "Labelled", "nodes: 1 Labelled")


async def test_what_a_pod_cannot_read_is_said(pool: Pool) -> None:
    sentence = "/etc/os-release of the node cannot be read: it is gone"
    pool.rig.fleet.features = lambda _: {"exitCode": 14, "message": sentence}
    pool.reboot(KERNEL, "boot-2")
    await pool.seconds(3)
    assert pool.condition() == ("False", "Unreadable", f"nodes: 1 Unreadable; gpu-0: {sentence}")
    assert pool.labels() == LABELS


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"exitCode": 0, "message": "hello"}, "the output of its pod is not a report: "),
        ({"exitCode": 0, "message": '{"bootId": "b", "uptime": 1, "kernel": "k", "pci": ["x"]}'}, "is not a report: "),
        ({"exitCode": 137, "reason": "OOMKilled"}, "its pod ended with code 137 (OOMKilled)"),
    ],
)
async def test_what_is_no_report_is_not_believed(ended: dict, said: str) -> None:
    pool = Pool()
    pool.rig.fleet.features = lambda _: ended
    await pool.seconds(5)
    assert pool.condition()[1] == "Unreadable"
    assert said in pool.condition()[2]
    assert pool.labels() == {}


async def test_a_pod_that_read_another_kernel_than_the_kubelet_says_is_not_believed() -> None:
    pool = Pool()
    pool.rig.fleet.features = lambda node: read_node_features(node, kernel="6.9.9")
    await pool.seconds(5)
    assert pool.condition() == (
        "False",
        "Disagrees",
        f"nodes: 1 Disagrees; gpu-0: its pod reports kernel 6.9.9, its kubelet reports {KERNEL}",
    )
    assert pool.labels() == {}


# ------------------------------------------------------------------------------- beside node-feature-discovery


async def test_where_nfd_runs_nothing_is_written() -> None:
    pool = Pool()
    pool.annotate(KEPT)
    pool.put_label(FULL, "6.9")
    await pool.rig.settle()
    assert (pool.labels(), pool.record()) == ({FULL: "6.9"}, None)
    assert pool.condition()[:2] == ("True", "NodeFeatureDiscovery")
    assert "node-feature-discovery labels the node" in pool.condition()[2]


async def test_nfd_comes_and_goes_and_there_is_one_writer_all_the_time(pool: Pool) -> None:
    pool.annotate(KEPT)
    pool.put_label(FULL, "foreign")
    await pool.seconds(3)
    assert (pool.labels(), pool.record()) == ({FULL: "foreign"}, None)
    before = len(pool.rig.cluster.writes)
    await pool.seconds(30)
    assert pool.rig.cluster.writes[before:] == []
    pool.annotate(dict.fromkeys(KEPT))  # as its prune job does: labels and annotations
    pool.put_label(FULL, None)
    await pool.seconds(3)
    assert pool.labels() == LABELS
    assert pool.condition() == ("True", "Labelled", "nodes: 1 Labelled")


async def test_a_node_that_nfds_worker_has_read_is_left_to_it() -> None:
    pool = Pool(nodes=2)
    pool.rig.cluster.installed |= {(NODE_FEATURES.group, NODE_FEATURES.plural): (NODE_FEATURES.version,)}
    for name, at in (("gpu-0", "gpu-0"), ("nvidia-features-for-gpu-1", "gpu-1")):
        labels = {"nfd.node.kubernetes.io/node-name": at}
        pool.rig.cluster.store.put(NODE_FEATURES, {"metadata": {"name": name, "namespace": "nfd", "labels": labels}})
    await pool.seconds(5)
    assert (pool.labels("gpu-0"), pool.labels("gpu-1")) == ({}, LABELS)
    assert pool.condition()[:2] == ("False", "LeftToNodeFeatureDiscovery")


async def test_somebody_elses_label_is_not_touched_and_named() -> None:
    pool = Pool()
    pool.put_label(FULL, "mine")
    await pool.labelled()
    assert pool.labels() == {**LABELS, FULL: "mine"}
    assert pool.condition()[2] == f"nodes: 1 Labelled; gpu-0: managed by another program: {FULL}"
    pool.ask("External")
    await pool.seconds(3)
    assert pool.labels() == {FULL: "mine"}


# ------------------------------------------------------------------------------- taken back


async def test_switched_off_all_its_objects_are_deleted(pool: Pool) -> None:
    pool.put_label("zone", "a")
    pool.ask("External")
    await pool.seconds(3)
    assert (pool.labels(), pool.record(), pool.condition(), pool.daemonsets()) == ({}, None, None, [])
    assert pool.node()["metadata"]["labels"]["zone"] == "a"


async def test_a_node_that_leaves_the_pool_loses_them(pool: Pool) -> None:
    pool.put_label("pool", "b")
    await pool.seconds(3)
    assert (pool.labels(), pool.record()) == ({}, None)


async def test_a_stack_that_is_deleted_takes_them_back(pool: Pool) -> None:
    pool.rig.cluster.store.remove(GPU_STACKS, STACK)
    await pool.rig.run_second()
    assert (pool.labels(), pool.record()) == ({}, None)


async def test_a_node_that_a_person_wants_left_alone_is_left_alone(pool: Pool) -> None:
    pool.put_label(names.LABEL_SKIP, "true")
    pool.reboot(KERNEL, "boot-2")
    before = len(pool.rig.cluster.writes)
    await pool.seconds(5)
    assert [one for one in pool.rig.cluster.writes[before:] if one.kind == "Node"] == []
    assert pool.record()["bootId"] == "boot-1-gpu-0"


async def test_of_two_stacks_on_a_node_one_labels_and_the_other_waits(pool: Pool) -> None:
    pool.ask("Auto", "pool-z")
    await pool.seconds(3)
    before = [one for one in pool.rig.cluster.writes if one.kind == "Node"]
    await pool.seconds(30)
    assert [one for one in pool.rig.cluster.writes if one.kind == "Node"] == before
    assert pool.record()["stack"] == STACK
    pool.ask("External")
    await pool.seconds(5)
    assert (pool.labels(), pool.record()["stack"]) == (LABELS, "pool-z")


async def test_labels_of_a_stack_that_went_unseen_are_taken_over(pool: Pool) -> None:
    record = pool.record() | {"stack": "gone"}
    pool.annotate({names.ANNOTATION_NODE_FEATURES: json.dumps(record)})
    await pool.seconds(3)
    assert (pool.labels(), pool.record()["stack"]) == (LABELS, STACK)
    pool.annotate({names.ANNOTATION_NODE_FEATURES: json.dumps(record)})
    pool.ask("External")
    await pool.seconds(3)
    assert (pool.labels(), pool.record()) == ({}, None)


async def test_a_record_that_nobody_can_read_blocks(pool: Pool) -> None:
    pool.annotate({names.ANNOTATION_NODE_FEATURES: "?"})
    pool.reboot(KERNEL, "boot-2")
    await pool.seconds(3)
    assert pool.condition()[:2] == ("False", "RecordUnreadable")
    assert pool.labels() == LABELS


# ------------------------------------------------------------------------------- trouble


def on_the_first_label(pool: Pool, error: Exception, *, acted: bool = False) -> None:
    """The first write of labels fails, before or after it was made."""

    def fail(write) -> None:
        waits = any(one["metadata"]["labels"][names.LABEL_COMPONENT] == "node-features" for one in pool.daemonsets())
        if waits and (write.verb, write.kind) == ("merge", "Node") and pool.record() is None:
            pool.rig.cluster.before_write = None
            pool.rig.cluster.fail_at(1, error, acted=acted)

    pool.rig.cluster.before_write = fail


@pytest.mark.parametrize("acted", [False, True])
async def test_a_write_that_meets_a_newer_node_is_made_again(acted) -> None:
    pool = Pool()
    on_the_first_label(pool, ConflictError("the node has changed"), acted=acted)
    await pool.labelled()
    assert pool.labels() == LABELS


async def test_a_write_that_is_refused_is_told_and_the_other_nodes_are_labelled() -> None:
    pool = Pool(nodes=2, image=False)

    def refuse(write) -> None:
        if (write.verb, write.kind, write.name) == ("merge", "Node", "gpu-0"):
            raise ClusterError("a webhook says no")

    pool.rig.cluster.before_write = refuse
    await pool.seconds(5)
    assert pool.condition() == ("False", "Refused", "nodes: 1 Refused, 1 Labelled; gpu-0: a webhook says no")
    assert (pool.labels("gpu-0"), pool.labels("gpu-1")) == ({}, LABELS)
    pool.rig.cluster.before_write = None
    await pool.rig.run_until(lambda: pool.condition() == ("True", "Labelled", "nodes: 2 Labelled"))


async def test_many_new_nodes_are_labelled_in_several_steps() -> None:
    pool = Pool(nodes=120, image=False)
    await pool.rig.run_until(lambda: any(pool.labels(f"gpu-{number}") for number in range(120)))
    found = [sum(bool(pool.labels(f"gpu-{number}")) for number in range(120))]
    for _ in range(3):
        await pool.rig.run_second()
        found.append(sum(bool(pool.labels(f"gpu-{number}")) for number in range(120)))
    assert found == [50, 100, 120, 120]
