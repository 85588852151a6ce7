"""A node whose pods of the first hour end as soon as they are created."""

import msgspec
import pytest

from tests.support.terminal import upgrader
from upgrader.api import names
from upgrader.api.resources import NAMESPACES, NODES, PODS
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.first_node.journal import PhaseJournal
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_protocol.recordings import RecordedOutput
from upgrader.core.timing import format_time

IMAGE = f"registry.example/node@sha256:{'a' * 64}"
NODE = "gpu-1"
SERIAL, UUID = "1653023012345", "GPU-6c2f1c5e-30f0-4a86-9a1e-2f2d3ee0ad2c"
SMI = f"<gpu><serial>{SERIAL}</serial><uuid>{UUID}</uuid></gpu>"
DMESG = "NFS: server files.corp.example\nlink up on gpu-1.corp.example (10.4.5.6)\n"
OUTPUTS = (
    RecordedOutput(name="names", source="names", text="gpu-1.corp.example\nstorage-7"),
    RecordedOutput(name="nvidia-smi-q-x.xml", source="nvidia-smi -q -x", text=SMI, code=0, seconds=4.0, limit=120),
    RecordedOutput(name="dmesg.txt", source="dmesg", text=DMESG, code=0, seconds=0.5, limit=30),
    RecordedOutput(name="fuser.txt", source="fuser", absent="the driver is not loaded"),
)
DONE = OrderResult(reason=Reason.DONE, message="recorded")
REPORT = SurveyReport(facts={"kernel": "6.1.0-47-amd64", "kubelet": "v1.34.4"}, seconds=1.5)
COMPONENTS = {"survey", "record", "holder", "gpus"}
SECRETS = (SERIAL, UUID.removeprefix("GPU-"), "corp.example", "10.4.5.6", "gpu-1", "storage-7")
"""What no file outside of the private folder contains."""


def lines(*values):
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


@pytest.fixture
def node(rig):
    """`logs` has the log of each pod by its component; a pod without a log does not end."""
    rig.logs = {"survey": lines(REPORT), "record": lines(*OUTPUTS, DONE)}
    rig.holder_phase = "Running"
    rig.before_end = lambda component: None
    rig.cluster.replies = {
        "SelfSubjectReview": lambda _: {"metadata": {"creationTimestamp": format_time(rig.cluster.clock.now())}},
        "SelfSubjectAccessReview": lambda _: {"status": {"allowed": True}},
        "SubjectAccessReview": lambda _: {"status": {"allowed": True}},
    }
    if rig.cluster.store.find_stored(NAMESPACES, "kube-system") is None:
        rig.cluster.store.put(NAMESPACES, {"metadata": {"name": "kube-system"}})

    def end_pods(change):
        pod = change.after
        component = (pod or {}).get("metadata", {}).get("labels", {}).get(names.LABEL_COMPONENT)
        if component == "holder" and change.before is None:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            rig.cluster.store.change(PODS, name, {"status": {"phase": rig.holder_phase}}, namespace)
        if component not in rig.logs or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            return
        rig.before_end(component)
        name = pod["metadata"]["name"]
        rig.cluster.logs[name, component] = rig.logs[component]
        rig.cluster.store.change(PODS, name, {"status": {"phase": "Succeeded"}}, pod["metadata"]["namespace"])

    rig.cluster.store.listeners.append(end_pods)
    info = {"kernelVersion": "6.1.0-47-amd64", "kubeletVersion": "v1.34.4", "systemUUID": UUID.removeprefix("GPU-")}
    rig.cluster.store.change(
        NODES, NODE, {"status": {"nodeInfo": info, "addresses": [{"type": "InternalIP", "address": "10.4.5.6"}]}}
    )
    return rig


def first_node(rig, folder, *words, name=NODE):
    return upgrader(rig, "first-node", name, "--report", str(folder), "--image", IMAGE, *words)


def own_pods(rig):
    """Pods of the first hour that are not deleted."""
    metas = [pod["metadata"] for pod in rig.cluster.store.copy_all(PODS)]
    own = [
        meta for meta in metas if meta.get("labels", {}).get(names.LABEL_COMPONENT) in {"survey", "record", "holder"}
    ]
    return [meta["name"] for meta in own if "deletionTimestamp" not in meta]


def shared_files(folder):
    """The files of a report that may be passed on, with their texts."""
    files = [path for path in folder.rglob("*") if path.is_file() and "private" not in path.parts]
    return {str(path.relative_to(folder)): path.read_text(errors="replace") for path in sorted(files)}


def read_journal(folder):
    return msgspec.json.decode((folder / "private/journal.json").read_bytes(), type=PhaseJournal)
