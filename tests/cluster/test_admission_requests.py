"""deploy/admission-requests.yaml on a real API server: who makes and changes the CheckpointRequests of plans."""

import uuid

import msgspec
import pytest
import yaml

from tests.support import manifests as m
from tests.support.deploying import apply
from tests.support.own_requests import own
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api.resources import CHECKPOINT_REQUESTS, NAMESPACES
from upgrader.core.errors import UpgraderError
from upgrader.kube.client import KubeCluster
from upgrader.kube.transport import Call

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(300)]

LEARNS_SECONDS = 120
POLICIES = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ValidatingAdmissionPolicy": f"{POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{POLICIES}/validatingadmissionpolicybindings",
}


@pytest.fixture
async def controller(controllers_kubeconfig):
    """Our client under the controller's own service account."""
    async with await KubeCluster.connect(controllers_kubeconfig) as connected:
        yield connected


@pytest.fixture
async def namespace(api, controller):
    """One whose jobs the controller may ask."""
    made = await api.create(NAMESPACES, {"metadata": {"name": f"t{uuid.uuid4().hex[:10]}"}})
    await apply(api, (ROOT / "deploy" / "job-namespace.yaml").read_text().replace("NAMESPACE", made.metadata.name))
    yield made.metadata.name
    await api.delete(NAMESPACES, made.metadata)


def planned(namespace):
    whole = m.checkpoint_request()
    made = own(whole | {"spec": whole["spec"] | {"gang": f"{namespace}/Job/train"}}, "uid-of-the-plan")
    made["metadata"].pop("ownerReferences")  # its plan is not there: the garbage collector would take it away
    return made


def alone(namespace):
    whole = m.checkpoint_request("alone", namespace)
    spec = {key: value for key, value in whole["spec"].items() if key not in {"plan", "group"}}
    return whole | {"spec": spec}


@pytest.fixture
async def installed(api, namespace):
    """The file, from when the API server judges by it."""
    found = list(yaml.safe_load_all((ROOT / "deploy" / "admission-requests.yaml").read_text()))
    for document in found:
        await api._transport.write(Call(method="POST", path=PATHS[document["kind"]], body=document))

    async def refused():
        try:
            await api.rehearse(CHECKPOINT_REQUESTS, planned(namespace))
        except UpgraderError as error:
            return error
        return None

    said = await eventually(refused, lambda error: error is not None, LEARNS_SECONDS)
    yield said
    for document in found:
        path = f"{PATHS[document['kind']]}/{document['metadata']['name']}"
        await api._transport.write(Call(method="DELETE", path=path))


async def changed(client, request, patch, subresource=""):
    """Change it, as it is now; the controller lists requests and gets none."""
    found = await client.list(CHECKPOINT_REQUESTS)
    fresh = next(each for each in found if each.metadata.uid == request.metadata.uid)
    return await client.merge(CHECKPOINT_REQUESTS, fresh.metadata, patch, subresource)


async def test_the_requests_of_plans_are_the_controllers_and_acks_are_everybodys(api, controller, namespace, installed):
    assert "made by the controller only" in f"{installed} {installed.details}"
    free = await api.create(CHECKPOINT_REQUESTS, alone(namespace))
    await changed(api, free, {"spec": {"lane": "slow"}})
    await changed(api, free, {"status": {"phase": "Withdrawn"}}, "status")
    for becomes in ({"spec": {"plan": "up"}}, {"metadata": {"labels": {"gpu-upgrader.io/plan": "up"}}}):
        with pytest.raises(UpgraderError):
            await changed(api, free, becomes)

    made = await controller.create(CHECKPOINT_REQUESTS, planned(namespace))
    answer = {"podUid": "u", "requestId": 100, "step": 7}
    seen = await changed(api, made, {"status": {"acks": [answer]}}, "status")
    assert [msgspec.to_builtins(ack)["step"] for ack in seen.status.acks] == [7]
    await changed(api, made, {"metadata": {"annotations": {"note": "x"}}})
    refused = (
        ({"spec": {"method": "exec", "command": ["id"]}}, ""),
        ({"metadata": {"labels": {"gpu-upgrader.io/batch": "2"}}}, ""),
        ({"status": {"phase": "Stopped"}}, "status"),
        ({"status": {"acks": [answer], "stoppedAt": "2026-11-21T09:00:00Z"}}, "status"),
    )
    for patch, subresource in refused:
        with pytest.raises(UpgraderError):
            await changed(api, made, patch, subresource)
    await changed(controller, made, {"status": {"phase": "Parked"}}, "status")
