"""Nodes, gangs and snapshots as values, for tests of the rules: good as they are, changed where a test says so."""

from collections.abc import Iterable
from typing import Any

from upgrader.core.model.fleet import Gang, ImageFacts, MemberFacts, NodeFacts, Owner, Snapshot, Target
from upgrader.core.model.revisions import image_key, plugin_key, with_revision
from upgrader_dev.simulated.cluster.ports import START

KERNEL = "6.1.0-40-amd64"
OLD, NEW = "560.1", "570.10"
PLUGIN_DIGEST = "registry.example/plugin@sha256:" + "a" * 64
RESOURCE = "nvidia.com/gpu"
PLUGIN_KEY = plugin_key(digest=PLUGIN_DIGEST, resource_name=RESOURCE, more=(("vendor", "sim"),))


def target(version: str = NEW, **changes: Any) -> Target:
    facts = {
        "stack": "pool-a",
        "revision": "",
        "driver_vendor": "sim",
        "driver_version": version,
        "plugin_image": "registry.example/plugin:1.0",
        "plugin_digest": PLUGIN_DIGEST,
        "resource_name": RESOURCE,
    }
    return with_revision(Target(**{**facts, **changes}))


def image(version: str = NEW, kernel: str = KERNEL) -> ImageFacts:
    digest = "registry.example/driver@sha256:" + (version + kernel).encode().hex().ljust(64, "0")[:64]
    key = image_key(vendor="sim", version=version, kernel=kernel, digest=digest)
    return ImageFacts(key=key, vendor="sim", version=version, kernel=kernel, digest=digest)


def node(name: str, version: str = OLD, **changes: Any) -> NodeFacts:
    """A node in service on the revision of a driver version, 8 GPUs."""
    facts = {
        "name": name,
        "uid": f"uid-{name}",
        "kernel": KERNEL,
        "kubelet_version": "1.35.4",
        "gpus": 8,
        "gpus_allocatable": 8,
        "driver_key": image(version).key,
        "plugin_key": PLUGIN_KEY,
        "operands": "on",
        "revision": target(version).revision,
    }
    return NodeFacts(**{**facts, **changes})


def fresh_node(name: str, **changes: Any) -> NodeFacts:
    """A node that was never installed."""
    bare = {"driver_key": "", "plugin_key": "", "operands": "", "revision": "", "gpus": 0, "gpus_allocatable": 0}
    return node(name, **{**bare, **changes})


def member(pod: str, at: str, **changes: Any) -> MemberFacts:
    facts = {
        "pod": pod,
        "uid": f"uid-{pod}",
        "namespace": "ml",
        "node": at,
        "container": "trainer",
        "phase": "Running",
        "gpus": 8,
        "mounted": True,
    }
    return MemberFacts(**{**facts, **changes})


def gang(job: str, at: Iterable[str], /, *, gpus: int = 8, **changes: Any) -> Gang:
    """A complete Job that can be asked, one member on each node."""
    members = tuple(member(f"{job}-{number}", where, gpus=gpus) for number, where in enumerate(at))
    facts = {
        "name": f"ml/Job/{job}",
        "namespace": "ml",
        "kind": "Job",
        "members": members,
        "owner": Owner(kind="Job", name=job, uid=f"uid-job-{job}"),
        "wanted": len(members),
        "method": "file",
    }
    return Gang(**{**facts, **changes})


def snapshot(nodes: Iterable[NodeFacts], gangs: Iterable[Gang] = (), **changes: Any) -> Snapshot:
    facts = {
        "cluster": "uid-cluster",
        "taken_at": START,
        "nodes": tuple(nodes),
        "gangs": tuple(gangs),
        "images": (image(OLD), image(NEW)),
        "api_server_version": "v1.36.0",
    }
    return Snapshot(**{**facts, **changes})
