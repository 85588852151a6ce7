"""Parts of the simulated world look at what changed, and at nothing else."""

from collections.abc import Hashable, Iterator

import pytest

from upgrader.api.resources import NODES, PODS
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.changes import Marks, Subset


@pytest.fixture
def store() -> ObjectStore:
    made = FakeCluster().store
    for name in ("a", "b"):
        made.put(NODES, {"metadata": {"name": name, "labels": {}}, "spec": {}})
    return made


def labels(node: Object) -> Iterator[tuple[Hashable, object]]:
    yield node["metadata"]["name"], node["metadata"]["labels"]


def marked(marks: Marks) -> str:
    return "".join(name for name in "abc" if name in marks)


def test_everything_is_decided_once_then_only_what_has_other_facts(store: ObjectStore) -> None:
    marks = Marks(store, {NODES: labels})
    assert marks.start_round()
    assert marked(marks) == "abc"
    assert not marks.start_round()
    store.change(NODES, "a", {"spec": {"unschedulable": True}})
    assert not marks.start_round()
    store.change(NODES, "b", {"metadata": {"labels": {"pool": "x"}}})
    assert marks.start_round()
    assert marked(marks) == "b"
    assert not marks.start_round()


def test_objects_that_come_and_go_are_marked(store: ObjectStore) -> None:
    marks = Marks(store, {NODES: labels})
    marks.start_round()
    store.put(NODES, {"metadata": {"name": "c", "labels": {}}})
    store.remove(NODES, "a")
    marks.start_round()
    assert marked(marks) == "ac"


def test_other_settings_mark_everything(store: ObjectStore) -> None:
    marks = Marks(store, {NODES: labels})
    marks.start_round({"a": 1})
    assert not marks.start_round({"a": 1})
    assert marks.start_round({"a": 2})
    assert marked(marks) == "abc"


def test_what_changes_in_a_round_counts_in_it_and_in_the_next_round(store: ObjectStore) -> None:
    marks = Marks(store, {NODES: labels})
    marks.start_round()
    marks.start_round()
    store.change(NODES, "b", {"metadata": {"labels": {"pool": "x"}}})
    assert marked(marks) == "b"
    assert marks.start_round()
    assert marked(marks) == "b"


def test_a_subset_follows_its_objects_in_the_order_of_their_names(store: ObjectStore) -> None:
    bound = Subset(store, PODS, lambda pod: "nodeName" in pod["spec"])
    for name in ("z", "y", "x"):
        store.put(PODS, {"metadata": {"name": name}, "spec": {"nodeName": "a"}, "status": {}})
    store.change(PODS, "y", {"spec": {"nodeName": None}}, "default")
    store.change(PODS, "z", {"spec": {"nodeName": "b"}}, "default")
    assert [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in bound.list_values()] == [
        ("x", "a"),
        ("z", "b"),
    ]
    store.remove(PODS, "x", "default")
    assert [pod["metadata"]["name"] for pod in bound.list_values()] == ["z"]


def test_a_subset_begins_with_what_is_there(store: ObjectStore) -> None:
    assert [node["metadata"]["name"] for node in Subset(store, NODES, lambda _node: True).list_values()] == ["a", "b"]


def test_a_subset_goes_by_the_object_as_it_is_now(store: ObjectStore) -> None:
    """A listener that was there before it may have changed the object again."""
    store.listeners.append(
        lambda change: store.remove(NODES, "c") if change.after and change.after["metadata"]["name"] == "c" else None
    )
    everything = Subset(store, NODES, lambda _node: True)
    store.put(NODES, {"metadata": {"name": "c"}})
    assert [node["metadata"]["name"] for node in everything.list_values()] == ["a", "b"]
