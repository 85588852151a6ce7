"""A driver image's programs on a virtual node, run as its container would, without a kubelet."""

import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from upgrader.images.drivers.builder.assembly import unpack_driver
from upgrader.images.layout import Layout
from upgrader.process import FinishedProgram
from upgrader_dev.devcluster.virtual.node import VirtualNode

ROOT = "/run/image"
STATE = "/run/gpu-upgrader/nvidia"
_PIECE = 4 << 20
_MOUNTS = "; ".join(f"mkdir -p {ROOT}/{name} && mount --rbind /{name} {ROOT}/{name}" for name in ("proc", "sys", "run"))


class DriverOnNode:
    """An image without its libraries and firmware, which are large and which no test of modules needs."""

    def __init__(self, node: VirtualNode, layout: Layout, folder: Path) -> None:
        self.node = node
        unpack_driver(layout, folder, only="*")
        self._send(folder)
        # The image's own root, with the node's processes, modules and devices, as the pod has them.
        node.enter("sh", "-c", f"{_MOUNTS}; mkdir -p {ROOT}/dev && mount --rbind /dev {ROOT}/dev")

    def _send(self, folder: Path) -> None:
        content = BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            archive.add(folder, ".", filter=lambda info: None if "driver/files" in info.name else info)
        whole = content.getvalue()
        self.node.enter("mkdir", "-p", ROOT)
        for start in range(0, len(whole), _PIECE):
            self.node.enter("sh", "-c", "cat >> /tmp/image.tgz", stdin=whole[start : start + _PIECE])
        self.node.enter("sh", "-c", f"tar -xzf /tmp/image.tgz -C {ROOT} && rm /tmp/image.tgz", seconds=120)

    def load(self) -> str:
        """Load, and end the container, which unloads nothing; the log."""
        script = (
            f"rm -f /run/load.log; chroot {ROOT} /driver/load > /run/load.log 2>&1 & pid=$!; "
            "until grep -q 'device(s)' /run/load.log || ! kill -0 $pid 2>/dev/null; do sleep 0.2; done; "
            "kill $pid 2>/dev/null; cat /run/load.log"
        )
        return self.node.enter("sh", "-c", script, seconds=300).text

    def add_service(self, name: str, version: str, script: str) -> None:
        """Add a service to the image; the script takes the place of its program."""
        files = f"{ROOT}/driver/files"
        config = f"{files}/usr/share/nvidia/nvswitch/{name}.cfg"
        program = f"{files}/usr/bin/{name}"
        self.node.enter("mkdir", "-p", f"{files}/usr/bin", f"{files}/usr/share/nvidia/nvswitch")
        self.node.enter("sh", "-c", f"cat > {program}; chmod 755 {program}", stdin=script.encode())
        line = f"{name} {version} exact required usr/bin/{name}"
        self.node.enter("sh", "-c", f"echo DAEMONIZE=1 > {config}; echo {line} >> {ROOT}/driver/services")

    def start_service(self, name: str) -> None:
        """Run a service as its container would, until it is stopped."""
        run = f"chroot {ROOT} /driver/service {name} > /run/{name}.log 2>&1 < /dev/null"
        self.node.enter("sh", "-c", f"{run} & echo $! > /run/{name}.pid")

    def stop_service(self, name: str) -> None:
        """Stop it, as the end of the pod does; returns when it has ended."""
        script = f"pid=$(cat /run/{name}.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.2; done"
        self.node.enter("sh", "-c", script, seconds=60)

    def service_state(self, name: str) -> tuple[str, str]:
        """The recorded state of a service, and its reason; empty before there is one."""
        found = self.node.enter("cat", f"{STATE}/services/{name}.json", check=False)
        content: dict[str, str] = json.loads(found.text) if found.code == 0 else {}
        return content.get("state", ""), content.get("reason", "")

    def probe(self) -> FinishedProgram:
        return self.node.enter("chroot", ROOT, "/driver/probe", check=False)

    def unload(self) -> FinishedProgram:
        """What `load` has left on the node, run as the node's upgrade runs it."""
        return self.node.enter("env", "HOST_ROOT=/", "sh", f"{STATE}/unload", check=False, seconds=300)

    @property
    def record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.node.enter("cat", f"{STATE}/loaded.json").text)
        return content

    def modules(self) -> set[str]:
        """Modules of the driver in the kernel."""
        lines = self.node.enter("cat", "/proc/modules").text.splitlines()
        return {line.split()[0] for line in lines if line.startswith("nvidia")}

    def device_files(self) -> set[str]:
        return set(self.node.enter("sh", "-c", "cd /dev && ls -d nvidia* char/195:* 2>/dev/null || true").text.split())
