"""deploy/ on a real API server, and who the controller is there."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.repository import ROOT
from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import ResourceKind
from upgrader.kube.client import KubeCluster
from upgrader.kube.transport import Call

SYSTEM = "gpu-upgrader-system"
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}


class Anything(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


async def apply(api: KubeCluster, text: str) -> None:
    """As kubectl apply."""
    for document in yaml.safe_load_all(text):
        group, _, version = document["apiVersion"].rpartition("/")
        kind = ResourceKind(
            group=group,
            version=version,
            kind=document["kind"],
            plural=f"{document['kind'].lower()}s".replace("ys", "ies"),
            namespaced=document["kind"] not in CLUSTER_WIDE,
            type=Anything,
        )
        await api.apply(kind, document)


async def deploy(api: KubeCluster) -> None:
    """Everything of deploy/ but what is per namespace."""
    for name in ("namespace.yaml", "rbac.yaml", "controller.yaml"):
        await apply(api, (ROOT / "deploy" / name).read_text())


async def as_controller(api: KubeCluster, kubeconfig: str, folder: Path) -> str:
    """A kubeconfig of the controller's ServiceAccount."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/gpu-upgrader/token"
    answer: Any = msgspec.json.decode(await api._transport.write(Call(method="POST", path=path, body=body)))
    with open(kubeconfig) as file:  # noqa: ASYNC230, PTH123 - a small local file
        config = yaml.safe_load(file)
    config["users"] = [{"name": each["name"], "user": {"token": answer["status"]["token"]}} for each in config["users"]]
    made = folder / "config"
    made.write_text(yaml.safe_dump(config))
    return str(made)
