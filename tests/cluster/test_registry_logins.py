"""A registry that requires a login: node pods on a real kubelet by docs/guides/cluster-admins/registry-logins.md."""

import asyncio
import base64
import json
import re

import msgspec
import pytest
import yaml

from tests.support.login_proxy import PASSWORD, USER, login_proxy
from tests.support.programs import soon
from tests.support.repository import ROOT
from upgrader.core.errors import RegistryError
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import read_logins
from upgrader.stack import manifests
from upgrader_dev.devcluster.box.node_files import registry_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs/guides/cluster-admins/registry-logins.md").read_text()
PATCHES = dict(re.findall(r"patch (serviceaccount gpu-upgrader-node|deployment \S+) -p '(\{.*?\})'\n", PAGE, re.DOTALL))
NODE_PODS = "gpu-upgrader-node"


@pytest.fixture
def private(installed):
    """Host and port of the registry with a login; the container runtime of the box uses plain http for it."""
    bench, addresses = installed, installed.cluster.addresses
    with login_proxy(bench.cluster.registry, addresses.host) as proxy:
        hosts = f"/var/lib/box/certs.d/{proxy}"
        bench.node.enter("mkdir", "-p", hosts)
        bench.node.enter("sh", "-c", f"printf %s '{registry_hosts(proxy).decode()}' > {hosts}/hosts.toml")
        yield proxy
    bench.api.patch(service_account(bench), {"imagePullSecrets": None})


def service_account(bench):
    return f"/api/v1/namespaces/{bench.settings.namespace}/serviceaccounts/{NODE_PODS}"


def login_of(proxy):
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return {"auths": {proxy: {"auth": auth}}}


def prepare_from(bench, proxy):
    """A prepare pod whose node image is in the private registry; a name that the node does not have yet."""
    image = bench.product.node.replace(bench.cluster.registry, proxy)
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("2.0.0", "1.34.4"))
    pod = manifests.prepare_pod(upgrade, msgspec.structs.replace(bench.settings, node_image=image))
    pod["metadata"].pop("ownerReferences")
    return pod


def trouble_of(bench, name):
    pod = bench.api.get(f"{bench.pods}/{name}")
    waiting = [each["state"].get("waiting", {}) for each in pod["status"].get("containerStatuses", [])]
    return next((each for each in waiting if each.get("reason") in {"ErrImagePull", "ImagePullBackOff"}), None)


def test_pods_on_nodes_pull_with_the_secret_of_their_service_account(installed, private):
    bench = installed
    refused = prepare_from(bench, private)
    assert bench.api.create(bench.pods, refused)
    soon(lambda: trouble_of(bench, refused["metadata"]["name"]), 120)
    bench.api.delete(f"{bench.pods}/{refused['metadata']['name']}?gracePeriodSeconds=0")

    contents = base64.b64encode(json.dumps(login_of(private)).encode()).decode()
    secret = {"metadata": {"name": "registry-login"}, "type": "kubernetes.io/dockerconfigjson"}
    bench.api.create(
        f"/api/v1/namespaces/{bench.settings.namespace}/secrets", secret | {"data": {".dockerconfigjson": contents}}
    )
    assert bench.api.patch(service_account(bench), json.loads(PATCHES[f"serviceaccount {NODE_PODS}"]))
    code, result = bench.run(prepare_from(bench, private))
    assert code == 0, result


def test_the_controller_reads_digests_with_the_login_file(installed, private, tmp_path):
    image = installed.product.node.replace(installed.cluster.registry, private)
    file = tmp_path / ".dockerconfigjson"
    file.write_text(json.dumps(login_of(private)))

    async def digest(logins):
        async with RegistryClient(insecure=(private,), logins=logins) as registry:
            return await registry.digest(image)

    assert asyncio.run(digest(read_logins(file))) == image
    with pytest.raises(RegistryError):
        asyncio.run(digest({}))


def test_the_login_file_is_where_the_patch_of_the_deployment_mounts_it():
    patch = json.loads(PATCHES["deployment gpu-upgrader-controller"])["spec"]["template"]["spec"]
    (deployment,) = yaml.safe_load_all((ROOT / "deploy/controller.yaml").read_text())
    (container,), (volume,) = patch["containers"], patch["volumes"]
    deployed = deployment["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in deployed] == [container["name"]]
    (mount,) = container["volumeMounts"]
    assert container["env"] == [{"name": "REGISTRY_AUTH_FILE", "value": f"{mount['mountPath']}/.dockerconfigjson"}]
    assert (mount["name"], volume) == (
        "registry-login",
        {"name": "registry-login", "secret": {"secretName": "registry-login"}},
    )
