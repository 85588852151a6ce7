"""Everything that we put on nodes is taken by a real API server as it is: nothing refused, nothing dropped."""

import uuid

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.api.resources import DAEMONSETS, JOBS, NAMESPACES, PODS

pytestmark = pytest.mark.cluster

KINDS = {kind.kind: msgspec.structs.replace(kind, type=dict) for kind in (DAEMONSETS, JOBS, PODS)}
GOLDEN = sorted((ROOT / "tests" / "unit" / "stack" / "golden").glob("*.yaml"))


@pytest.fixture
async def namespace(api):
    """A namespace of its own, in which pods of ours are allowed as deploy/ allows them."""
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
