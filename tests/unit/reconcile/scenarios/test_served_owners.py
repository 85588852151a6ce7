"""Owners whose projects have changed the version that is served: found, stopped, restarted and swept all the same."""

import msgspec
import pytest

from tests.support.manifests import checkpoint_request
from tests.support.owners import owner
from tests.support.terminal import upgrader
from upgrader.api import names
from upgrader.api.resources import ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core.errors import UnreachableError
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.core.workloads.placement import Placement
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner, resource_of
from upgrader_dev.simulated.cluster.rig import Rig

GROUP = "kueue.x-k8s.io"
KUEUE = owner_kind("Workload", f"{GROUP}/v1beta1")
SERVED: ResourceKind[dict] = resource_of(KUEUE, "v1beta2")
RECORD = {names.ANNOTATION_STOPPED: '{"plan": "up", "request": "up-1", "previous": true}'}


@pytest.fixture
def rig():
    """Kueue from 0.20: v1beta1 is not served any more."""
    rig = Rig()
    rig.cluster.installed |= {(GROUP, "workloads"): ("v1beta2",)}
    return rig


def workload(rig, **changes):
    return rig.cluster.store.put(SERVED, {**owner(KUEUE, "train", **changes), "apiVersion": SERVED.api_version})


def active(rig):
    return rig.cluster.store.find(SERVED, "train", "default")["spec"]["active"]


async def test_one_recorded_in_a_version_that_is_no_longer_served_is_stopped_and_restarted(rig):
    made = workload(rig)
    request = msgspec.convert(checkpoint_request("train"), CheckpointRequest)
    recorded = OwnerRef(kind="Workload", api_version=KUEUE.api_version, name="train", uid=made["metadata"]["uid"])
    found = []
    for act in (live_owners.suspend_owner, restart):
        live = await live_owners.read_owner(rig.context, recorded, "default")
        await act(rig.context, live, request)
        found.append((live.unread, live.resource.version, active(rig)))
    assert found == [("", "v1beta2", False), ("", "v1beta2", True)]


async def restart(context, live: LiveOwner, request):
    await live_owners.resume_owner(context, live, request.metadata.name, Placement())


async def test_stops_are_found_in_the_version_that_is_served(rig):
    workload(rig, annotations=RECORD)
    assert [(one.row, one.meta.name) for one in await live_owners.list_recorded_owners(rig.context)] == [
        (KUEUE, "train")
    ]


async def test_a_kind_that_is_not_installed_has_no_stops(rig):
    rig.cluster.installed = {}
    assert await live_owners.list_recorded_owners(rig.context) == []


async def test_where_it_is_not_known_what_is_served_nothing_is_said_about_stops(rig):
    rig.cluster.reachable = False
    with pytest.raises(UnreachableError):
        await live_owners.list_recorded_owners(rig.context)


def test_uninstall_restarts_a_workload_whose_request_is_lost(rig):
    workload(rig, annotations=RECORD)
    rig.cluster.store.change(SERVED, "train", {"spec": {"active": False}}, "default")
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    found = rig.cluster.store.find(SERVED, "train", "default")
    assert (found["spec"]["active"], found["metadata"].get("annotations")) == (True, {})
