"""A node in a folder, for surveys: an HGX machine as files, on which an upgrade would find nothing wrong."""

import json
from pathlib import Path

import msgspec

from tests.support.smi_reports import make_gpu, render_report
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.node_protocol.orders import KubeletTarget, SurveyScope
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramResult
from upgrader.node.kubelet.node_pods import NodePod
from upgrader.node.survey.node_survey import survey_node
from upgrader.node.survey.surveyed_node import SurveyedNode

KERNEL = "6.1.0-47-amd64"
BINARY = "/usr/bin/kubelet"
UNIT = "kubelet.service"
GPU_ALIAS = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
SWITCH_ALIAS = "pci:v000010DEd000022A3sv000010DEsd00001796bc06sc80i00"
ALIASES = """# aliases of modules
alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau
alias pci:v000010DEd*sv*sd*bc03sc00i00* nvidia
alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia
alias pci:v000010DEd*sv*sd*bc06sc80i00* nvidia
alias pci:v00008086d*sv*sd*bc03sc*i* i915
"""
"""Lines of modules.alias of Debian 12 (nouveau), and of the package nvidia-kernel-dkms (nvidia)."""


class SystemdPrograms:
    """The node's systemctl, the fetched kubelet with the flags that it rejects, and nvidia-smi with its GPUs."""

    def __init__(self) -> None:
        self.properties = {
            "Restart": "always",
            "RestartUSec": "10s",
            "StartLimitIntervalUSec": "10s",
            "StartLimitBurst": "5",
        }
        self.code = 0
        self.rejected: set[str] = set()
        self.gpus = [make_gpu(address="0000:1b:00.0")]
        self.smi_code = 0
        self.calls: list[list[str]] = []

    def run(self, words, *, seconds, env=None):
        del env
        assert seconds > 0
        self.calls.append(list(words))
        if words[-2:] == ["-q", "-x"]:
            return ProgramResult(code=self.smi_code, output=render_report("535.261.03", self.gpus))
        if words[-2:] == ["nvlink", "-s"]:
            return ProgramResult(code=0, output="")
        if words[0] == "nsenter":
            assert words[:7] == ["nsenter", "-t", "1", "-m", "systemctl", "show", UNIT]
            return ProgramResult(code=self.code, output="".join(f"{k}={v}\n" for k, v in self.properties.items()))
        assert words[-1] == "--version"
        wrong = [word for word in words if word.split("=")[0] in self.rejected]
        if wrong:
            return ProgramResult(code=1, output=f"Error: failed to parse kubelet flag: unknown flag: {wrong[0]}\n")
        return ProgramResult(code=0, output="Kubernetes v1.36.2\n")


class SurveyWorld:
    """The node. Its methods add what surveys find."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.proc = folder / "proc"
        self.programs = SystemdPrograms()
        self.pods: dict[str, NodePod] | None = None
        """What the API server has; None: no pod can be read, as without the name of the node."""
        self.scope = SurveyScope(vendor="nvidia", resources=("nvidia.com/gpu",), namespace="gpu-upgrader-system")
        self.write("etc/os-release", 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
        self.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        self.write("run/systemd/system/.keep", "")
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
        self.write(f"lib/modules/{KERNEL}/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko: kernel/a.ko\n")
        self.write(f"lib/modules/{KERNEL}/modules.alias", ALIASES.replace(" nvidia\n", " other\n"))
        self.write("etc/modprobe.d/nouveau.conf", "# as the guide requires\nblacklist nouveau\n")
        self.add_device("0000:1b:00.0", "0x030200", GPU_ALIAS)
        self.write_proc("cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n")
        self.write_proc("stat", "cpu 1\nbtime 1700000000\n")
        self.add_kubelet()

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def write_proc(self, path: str, text: str) -> None:
        file = self.proc / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def add_device(self, address: str, kind: str, alias: str, vendor: str = "0x10de") -> None:
        for name, text in (("class", kind), ("vendor", vendor), ("modalias", alias)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", f"{text}\n")

    def add_process(self, pid: int, name: str, group: str, *, opened: str = "", mapped: str = "") -> None:
        self.write_proc(f"{pid}/comm", f"{name}\n")
        self.write_proc(f"{pid}/cgroup", f"0::{group}\n")
        for part, target in (("fd/3", opened), ("map_files/7f00-7f01", mapped)):
            if target:
                link = self.proc / str(pid) / part
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)

    def add_kubelet(self, *arguments: str, group: str = f"/system.slice/{UNIT}") -> None:
        self.add_process(700, "kubelet", group)
        words = [BINARY, "--kubeconfig", "/etc/kubernetes/kubelet.conf", *arguments]
        self.write_proc("700/cmdline", "\0".join(words) + "\0")
        self.write_proc("700/stat", "700 (kubelet) S 1 " + " ".join(["0"] * 40) + "\n")
        executable = self.proc / "700/exe"
        if not executable.is_symlink():
            executable.symlink_to(self.write("usr/bin/kubelet", "a program"))  # /proc leads to the file itself

    def load_module(self, name: str, *, holders: tuple[str, ...] = (), version: str = "") -> None:
        self.write(f"sys/module/{name}/refcnt", f"{len(holders)}\n")
        (self.root / f"sys/module/{name}/holders").mkdir(exist_ok=True)
        for holder in holders:
            self.write(f"sys/module/{name}/holders/{holder}", "")
        if version:
            self.write(f"sys/module/{name}/version", f"{version}\n")

    def load_own_driver(self) -> None:
        """The driver of an image of this operator, with its record."""
        self.load_module("nvidia", holders=("nvidia_uvm",), version="535.261.03")
        self.load_module("nvidia_uvm")
        record = {"vendor": "nvidia", "version": "535.261.03", "kernel": KERNEL, "bootId": "boot-1", "devices": 1}
        self.write("run/gpu-upgrader/nvidia/loaded.json", json.dumps(record))

    def add_smi(self) -> Path:
        """nvidia-smi of the loaded driver, which has the GPU."""
        self.write_proc("driver/nvidia/gpus/0000:1b:00.0/information", "")
        return self.write("var/lib/gpu-upgrader/drivers/nvidia/current/usr/bin/nvidia-smi", "")

    def fetch_kubelet(self, version: str = "1.36.2") -> KubeletTarget:
        self.write(f"var/lib/gpu-upgrader/kubelet/{version}/kubelet", "")
        return KubeletTarget(version=version, binary=BINARY)

    def scope_of(self, **fields) -> SurveyScope:
        """The scope of a swap of the driver alone, with changed fields."""
        return msgspec.structs.replace(self.scope, **fields)

    def survey(self, **scope) -> SurveyReport:
        """The report; `scope` are the fields that differ from a swap of the driver alone."""
        return survey_node(self.node(self.scope_of(**scope)))

    def node(self, scope: SurveyScope) -> SurveyedNode:
        name = "gpu-1" if self.pods is not None else ""
        return SurveyedNode(
            scope, Host(self.root, self.proc), self.programs, name, read_pods=lambda *_: self.pods or {}
        )

    def found(self, **scope) -> list[tuple[str, str, str]]:
        """Check, severity and subject of each finding."""
        return self.found_on(self.node(self.scope_of(**scope)))

    def found_on(self, node: SurveyedNode) -> list[tuple[str, str, str]]:
        return [(advice.check, advice.severity.value, advice.subject) for advice in survey_node(node).findings]
