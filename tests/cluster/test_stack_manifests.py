"""Everything that we put on nodes is taken by a real API server as it is: nothing refused, nothing dropped."""

import contextlib
import uuid

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.api.resources import DAEMONSETS, JOBS, NAMESPACES, PODS
from upgrader.core.errors import ConflictError

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

KINDS = {kind.kind: msgspec.structs.replace(kind, type=dict) for kind in (DAEMONSETS, JOBS, PODS)}
SERVICES = msgspec.structs.replace(PODS, kind="Service", plural="services", type=dict)
KINDS["Service"] = SERVICES
STACK = ROOT / "tests" / "unit" / "stack"
GOLDEN = sorted(
    file
    for folder in ("golden", "operands/golden-monitoring")
    for file in (STACK / folder).glob("*.yaml")
    if "kind: ServiceMonitor\n" not in file.read_text()  # a kind of others, whose definition the project does not keep
)


RUNTIME_CLASSES = msgspec.structs.replace(
    NAMESPACES, group="node.k8s.io", kind="RuntimeClass", plural="runtimeclasses", type=dict
)


@pytest.fixture(autouse=True)
async def runtime_class(api):
    """The one that ships beside NVIDIA's stack: without it no pod that names it is taken."""
    documents = yaml.safe_load_all((ROOT / "deploy" / "stacks" / "nvidia.yaml").read_text())
    (body,) = (one for one in documents if one["kind"] == "RuntimeClass")
    with contextlib.suppress(ConflictError):
        await api.create(RUNTIME_CLASSES, body)


@pytest.fixture
async def namespace(api):
    """A namespace of its own, in which pods of the operator are allowed as deploy/ allows them."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    created = await api.create(
        NAMESPACES,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        },
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gpu-upgrader-node"}}
    accounts = msgspec.structs.replace(
        NAMESPACES, kind="ServiceAccount", plural="serviceaccounts", namespaced=True, type=dict
    )
    await api.create(accounts, account | {"metadata": account["metadata"] | {"namespace": name}})
    yield name
    await api.delete(NAMESPACES, created.metadata)


def missing(sent, stored, path=""):
    """Paths of what was sent and is not stored as it was."""
    match sent:
        case dict():
            gone = [f"{path}.{key}" for key in sent if not isinstance(stored, dict) or key not in stored]
            kept = [key for key in sent if isinstance(stored, dict) and key in stored]
            return gone + [one for key in kept for one in missing(sent[key], stored[key], f"{path}.{key}")]
        case list() if isinstance(stored, list) and len(sent) <= len(stored):
            return [one for i, item in enumerate(sent) for one in missing(item, stored[i], f"{path}[{i}]")]
        case _:
            return [] if sent == stored else [path]


@pytest.mark.parametrize("file", GOLDEN, ids=[file.stem for file in GOLDEN])
async def test_a_manifest_is_stored_whole(api, namespace, file):
    manifest = yaml.safe_load(file.read_text())
    manifest["metadata"]["namespace"] = namespace
    manifest["metadata"].pop("ownerReferences", None)  # its owner is not there: garbage collection would race
    stored = await api.create(KINDS[manifest["kind"]], manifest)
    assert missing(manifest, stored) == []
