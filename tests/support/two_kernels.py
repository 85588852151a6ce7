"""Nodes with a gang in virtual time, and images of two drivers for two kernels: rollouts with a reboot begin here."""

from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig

NOW, NEXT = "6.1.0-47-amd64", "6.1.0-50-amd64"


def reboot_into(kernel: str) -> Object:
    """The field `reboot` of a stack."""
    return {"kernel": kernel, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}


async def rig_with_gang(nodes: int) -> Rig:
    """Nodes on driver 1.0 and kernel NOW with a gang over all; images of 1.0 and 2.0 for both kernels."""
    rig = Rig()
    for number in range(nodes):
        rig.fleet.add_node(f"gpu-{number}")
    for version in ("1.0", "2.0"):
        for kernel in (NOW, NEXT):
            rig.put_image(version, kernel)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=nodes, gpus=8)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig


def kernels(rig: Rig) -> set[str]:
    """The kernels that nodes run."""
    return {node["status"]["nodeInfo"]["kernelVersion"] for node in rig.nodes()}
