"""The StorageClass that a pod's checkpoints go to."""

import pytest

from tests.support.observed import pod, wire
from upgrader.api.kubernetes import PersistentVolumeClaim
from upgrader.reconcile.facts.storage import classes_of, keeps_on_claims, storage_class

CLASSES = {("ml", "data"): "nfs-slow", ("ml", "scratch"): "nvme", ("ml", "more"): "nvme", ("dev", "data"): "other"}


def trainer(*mounts):
    """A pod that mounts claims (or, where they begin with "empty", something else) at paths."""
    volumes = [
        {"name": claim, **({"emptyDir": {}} if claim == "empty" else {"persistentVolumeClaim": {"claimName": claim}})}
        for claim in {claim for claim, _ in mounts}
    ]
    return pod(volumes=volumes, mounts=[{"name": claim, "mountPath": path} for claim, path in mounts])


CASES = {
    "the only claim": ((("data", "/data"),), "", "nfs-slow"),
    "a claim of another class, by the path": ((("data", "/data"), ("scratch", "/scratch")), "/scratch/run", "nvme"),
    "several classes and no path": ((("data", "/data"), ("scratch", "/scratch")), "", ""),
    "several claims of one class": ((("scratch", "/scratch"), ("more", "/more")), "", "nvme"),
    "the longest mount counts": ((("data", "/data"), ("scratch", "/data/fast")), "/data/fast/c", "nvme"),
    "a mount whose name only begins so": ((("data", "/data"), ("scratch", "/data-2")), "/data-2/c", "nvme"),
    "the path is on no claim": ((("data", "/data"), ("empty", "/tmp")), "/tmp/c", ""),
    "the path is on no mount": ((("data", "/data"),), "/else", ""),
    "a claim at the root": ((("data", "/"),), "/anything", "nfs-slow"),
    "a claim that nobody knows": ((("gone", "/data"),), "", ""),
    "one that nobody knows beside one that is known": ((("gone", "/a"), ("data", "/b")), "", ""),
    "no claim": ((("empty", "/tmp"),), "", ""),
}


@pytest.mark.parametrize(("mounts", "path", "expected"), CASES.values(), ids=CASES)
def test_where_checkpoints_go(mounts, path, expected):
    assert storage_class(trainer(*mounts), "trainer", path, CLASSES) == expected


def test_only_the_container_that_answers_is_looked_at():
    assert storage_class(trainer(("data", "/data")), "sidecar", "", CLASSES) == ""


def test_claims_name_their_class_or_say_nothing():
    def claim(name, **spec):
        return wire({"metadata": {"name": name, "namespace": "ml"}, "spec": spec}, PersistentVolumeClaim)

    found = [claim("data", storageClassName="nfs-slow"), claim("old"), claim("bound-by-hand", storageClassName="")]
    assert classes_of(found) == {("ml", "data"): "nfs-slow"}


def test_claims_are_read_only_where_a_pod_with_devices_mounts_one():
    assert keeps_on_claims(trainer(("data", "/data")))
    assert not keeps_on_claims(trainer(("empty", "/tmp")))
    assert not keeps_on_claims(pod(gpus=None, volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]))
