"""Every operand at once on real kernels, without a job.

GPUs are handed in as CDI devices by a containerd that serves them; a driver pod's end leaves the module where it is.
"""

import json
from typing import Any

import pytest

from tests.e2e_vm.conftest import JOB, VirtualPool
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.core.model.operands import Operand
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader_dev.demo import waiting
from upgrader_dev.demo.controller import NAMESPACE
from upgrader_dev.demo.manifests import RESOURCE
from upgrader_dev.demo.real_drivers import OPEN
from upgrader_dev.demo.scenes import run_command

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

PODS = "/api/v1/namespaces/default/pods"
LOOK = "for d in /dev/sim-gpu* /dev/nvidia*; do [ -e $d ] && echo $d; done; true"
KERNEL = "feature.node.kubernetes.io/kernel-version.full"


async def seen_by(pool: VirtualPool, node: str, name: str, count: int) -> list[str]:
    """Device files that a pod on a node sees which asks for so many GPUs."""
    api = pool.made.cluster.api
    container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/busybox", "sh", "-c", LOOK]}
    container |= {"resources": {"limits": {RESOURCE: str(count)}}} if count else {}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    api.create(PODS, {"metadata": {"name": name}, "spec": spec})

    async def over() -> bool:
        return api.get(f"{PODS}/{name}")["status"]["phase"] in {"Succeeded", "Failed"}

    await waiting.poll_until(over, 90, f"pod {name} ends")
    ended = api.get(f"{PODS}/{name}")["status"]
    assert ended["phase"] == "Succeeded", ended
    lines = api.read_text(f"{PODS}/{name}/log").splitlines()
    api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    return lines


def pod_of(pool: VirtualPool, component: str, node: str) -> dict[str, object]:
    """The one pod of an operand on a node that is not being deleted; empty while there is none."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={names.LABEL_COMPONENT}={component}"
    found = [one for one in pool.made.cluster.api.get(path)["items"] if one["spec"].get("nodeName") == node]
    staying = [one for one in found if "deletionTimestamp" not in one["metadata"]]
    return staying[0] if len(staying) == 1 else {}


def is_ready(pod: dict) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def loaded(pool: VirtualPool, node: str) -> str:
    """What a node's kernel says of the module, and on which boot."""
    files = ("module/nvidia/version", "module/nvidia/srcversion", "module/nvidia/refcnt")
    words = [*(f"/sys/{file}" for file in files), "/proc/sys/kernel/random/boot_id"]
    return str(pool.machines[node].enter("cat", *words).text)


def whole_stack(pool: VirtualPool, *, kubelet: str) -> dict[str, Any]:
    """The stack with every operand."""
    managed_part = {"management": "Managed", "image": pool.made.images.simulated_gpus}
    managed = dict.fromkeys(("runtime", "featureDiscovery", "monitoring"), managed_part)
    return pool.made.real_stack(OPEN, kubelet, "1", **managed, nodeFeatures="Auto")


def loads(pool: VirtualPool, node: str) -> int:
    """How often the kernel has initialized the module on this boot."""
    return pool.machines[node].enter("dmesg").text.count("NVRM: loading NVIDIA UNIX")


async def labelled(pool: VirtualPool) -> None:
    """Until each node carries the name of its kernel, as its own labeller read it there."""
    wanted = {name: machine.enter("uname", "-r").text.strip() for name, machine in pool.machines.items()}

    async def look() -> bool:
        return {name: node.metadata.labels.get(KERNEL) for name, node in (await pool.nodes()).items()} == wanted

    await waiting.poll_until(look, 180, f"nodes are labelled with their kernels: {wanted}")


async def test_every_operand_comes_up_and_gpus_are_handed_in_as_cdi_devices(pool: VirtualPool) -> None:
    await pool.end_job(JOB)
    with pool.step("all operands come up"):
        await pool.brought_to(whole_stack(pool, kubelet="1.34.4"))
        everywhere = dict.fromkeys(Operand, "2/2")
        await pool.eventually(
            GPU_STACKS,
            "pool",
            lambda one: {row.operand: row.shown for row in one.status.operands} == everywhere,
            seconds=400,
        )
        await labelled(pool)
    for node, machine in pool.machines.items():
        hook = json.loads(machine.enter("cat", f"{RUN_DIRECTORY}/runtime.json").text)
        assert hook["cdi"], hook["why"]
        labels = (await pool.nodes())[node].metadata.labels
        assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.product"]) == ("8", "SIMULATED-GPU")
        address = pod_of(pool, "monitoring", node)["status"]["podIP"]
        metrics = machine.enter("wget", "-qO-", f"http://{address}:9400/metrics").text
        assert metrics.count("DCGM_FI_DEV_GPU_UTIL{") == 8
    (device,) = await seen_by(pool, "vm-a", "asks", 1)
    assert device.startswith("/dev/sim-gpu")
    assert await seen_by(pool, "vm-a", "asks-for-two", 2) != [device]
    assert await seen_by(pool, "vm-a", "asks-not", 0) == []


async def test_a_survey_of_nodes_in_use_finds_nothing_that_prevents_an_upgrade(pool: VirtualPool) -> None:
    words = ["--node", "vm-a", "--node", "vm-b", "--image", pool.made.images.node, "--output", "json"]
    ended = await run_command(pool.made.cluster, print, "doctor", *words, check=False)
    reports = {shown["node"]: shown["report"] for shown in json.loads(ended.stdout)}
    assert set(reports) == {"vm-a", "vm-b"}


async def test_the_end_of_a_driver_pod_leaves_the_module_where_it_is(pool: VirtualPool) -> None:
    before, upgrades = loaded(pool, "vm-a"), await pool.upgraded()
    api = pool.made.cluster.api
    for component in ("driver", "device-plugin"):
        first = pod_of(pool, component, "vm-a")["metadata"]
        api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{first['name']}")

        async def another(component: str = component, uid: str = first["uid"]) -> bool:
            now = pod_of(pool, component, "vm-a")
            return bool(now) and now["metadata"]["uid"] != uid and is_ready(now)

        await waiting.poll_until(another, 180, f"another pod of {component} is ready on vm-a")
        assert loaded(pool, "vm-a") == before
    assert await pool.upgraded() == upgrades
    assert await seen_by(pool, "vm-a", "asks-again", 1)


async def test_an_upgrade_of_the_kubelet_alone_leaves_the_driver_loaded(pool: VirtualPool) -> None:
    before = {node: (loads(pool, node), loaded(pool, node)) for node in pool.machines}
    with pool.step("another kubelet under the loaded driver"):
        await pool.brought_to(whole_stack(pool, kubelet="1.35.4"))
    assert {node.status.node_info.kubelet_version for node in (await pool.nodes()).values()} == {"v1.35.4"}
    assert {node: (loads(pool, node), loaded(pool, node)) for node in pool.machines} == before
