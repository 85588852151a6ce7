import pytest

from tests.support.observed import OWN, wire
from upgrader.api import kubernetes as k
from upgrader.core import timing
from upgrader.core.model.operands import Operand, OperandPod, PartPod
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.reconcile.facts.operand_pods import operand_pod, part_pod

WAITS = {"name": "after-driver", "state": {"running": {}}}
DONE = {"name": "after-driver", "state": {"terminated": {"exitCode": 0}}}


def pod(component="device-plugin", phase="Pending", containers=(), inits=(), **meta):
    status = {"phase": phase, "containerStatuses": list(containers), "initContainerStatuses": list(inits)}
    if phase == "Ready":
        status |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"gpu-upgrader.io/component": component}
    return wire(
        {
            "metadata": {"name": "p", "namespace": OWN, "labels": labels, **meta},
            "spec": {"nodeName": "a"},
            "status": status,
        },
        k.Pod,
    )


@pytest.mark.parametrize(
    "one",
    [
        pod(component="upgrade"),
        pod(component=""),
        pod(phase="Failed"),
        pod(namespace="ml"),
        pod(deletionTimestamp="2026-11-21T09:00:00Z"),
    ],
)
def test_what_is_no_operand_of_our_own_does_not_count(one):
    assert operand_pod(one, OWN) is None


TROUBLE = {
    "it waits for the one before": (pod(inits=[WAITS]), "it waits for Driver"),
    "it is only starting": (pod(inits=[DONE], containers=[{"name": "plugin", "state": {}}]), ""),
    "its image is missing": (
        pod(
            inits=[DONE],
            containers=[
                {
                    "name": "plugin",
                    "image": "registry.example/plugin:1",
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling\n image"}},
                }
            ],
        ),
        "image registry.example/plugin:1: ImagePullBackOff: Back-off pulling image",
    ),
    "it crashes": (
        pod(
            inits=[DONE],
            containers=[
                {
                    "name": "plugin",
                    "restartCount": 4,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                    "lastState": {"terminated": {"exitCode": 1, "message": "no NVML"}},
                }
            ],
        ),
        "container plugin ended with 1, 4 restart(s); its output: no NVML",
    ),
}


@pytest.mark.parametrize(("one", "trouble"), TROUBLE.values(), ids=TROUBLE)
def test_why_it_is_not_ready(one, trouble):
    assert operand_pod(one, OWN) == OperandPod(node="a", operand=Operand.DEVICE_PLUGIN, trouble=trouble)


def test_one_that_is_ready_has_no_trouble_whatever_it_went_through():
    last = {"name": "plugin", "ready": True, "restartCount": 1, "lastState": {"terminated": {"exitCode": 1}}}
    ready = OperandPod(node="a", operand=Operand.DRIVER, ready=True)
    assert operand_pod(pod(component="driver", phase="Ready", containers=[last]), OWN) == ready


MADE = {"name": "wait", "state": {"waiting": {"reason": "PodInitializing"}}}
BEGAN = "2026-11-21T09:00:00Z"
SILENT = {
    "its volumes are not there": pod(inits=[MADE], containers=[MADE | {"name": "plugin"}], creationTimestamp=BEGAN),
    "no kubelet has taken it up": pod(creationTimestamp=BEGAN),
}


@pytest.mark.parametrize("one", SILENT.values(), ids=SILENT)
def test_of_one_that_does_not_begin_nothing_is_said_but_since_when(one):
    since = timing.parse_time(BEGAN)
    assert part_pod(one) == PartPod(node="a", silence=Silence(since=since, uid=one.metadata.uid))


@pytest.mark.parametrize(
    "one",
    [
        pod(inits=[DONE], containers=[{"name": "plugin", "state": {"waiting": {"reason": "PodInitializing"}}}]),
        pod(inits=[WAITS], containers=[MADE]),
        pod(phase="Running", containers=[MADE]),
    ],
    ids=["a container before it is done", "one before it runs", "it ran before"],
)
def test_one_of_which_a_container_has_begun_is_not_silent(one):
    assert part_pod(one).silence is None
