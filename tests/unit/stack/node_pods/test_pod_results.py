"""What became of our pods on a node, sentence by sentence."""

import msgspec
import pytest

from tests.support.node_upgrades import UID, upgrade
from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Job, Pod
from upgrader.core import timing
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.upgrade_state import PodOutcome, PodResult
from upgrader.stack.naming import prepare_name, validation_name
from upgrader.stack.node_pods.pod_results import prepare_result, upgrade_result, validate_result

UPGRADE = upgrade()
PREPARE = prepare_name(UPGRADE)
VALIDATE, REVALIDATE = (validation_name(UPGRADE, reverting=one) for one in (False, True))

DONE = OrderResult(reason=Reason.DONE, message="well")
LATE = OrderResult(reason=Reason.KUBELET_RESTORED, message="the old one runs")
BUSY = OrderResult(reason=Reason.BUSY, message="in use by pid 7 (python)")
KILLED = {"exitCode": 137, "reason": "Error"}


def said(result, code=0):
    return {"terminated": {"exitCode": code, "message": msgspec.json.encode(result).decode()}}


def waits(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def pod(phase, *, state=None, init=None, name=PREPARE, component="prepare", created=0, owner=UID, **status):
    containers = [{"name": component, "state": state}] if state else []
    inits = [{"name": "driver", "state": init}] if init else []
    body = {
        "metadata": {
            "name": name,
            "labels": {names.LABEL_COMPONENT: component},
            "creationTimestamp": f"2026-11-21T09:00:{created:02}Z",
            "ownerReferences": [{"kind": "NodeUpgrade", "name": "upgrade", "uid": owner, "controller": True}],
        },
        "spec": {
            "initContainers": [{"name": "driver", "image": "r/driver@sha256:1"}],
            "containers": [{"name": component, "image": "r/upgrader@sha256:2"}],
        },
        "status": {"phase": phase, "containerStatuses": containers, "initContainerStatuses": inits, **status},
    }
    return msgspec.convert(body, Pod)


def waiting(trouble=""):
    return PodResult(outcome=PodOutcome.WAITING, trouble=trouble)


def silent(since="2026-11-21T09:00:00Z", **of):
    """Waiting, and its status does not say for what."""
    return PodResult(outcome=PodOutcome.WAITING, silence=Silence(since=timing.parse_time(since), **of))


def failed(trouble, result=None):
    return PodResult(outcome=PodOutcome.FAILED, result=result, trouble=trouble)


NOT_FOUND = 'rpc error: code = NotFound desc = failed to pull and unpack image "r/driver@sha256:1": not found'
NO_ROUTE = "rpc error: code = Unknown desc = failed to pull: dial tcp 10.0.0.1:5000: connect: no route to host"

CASES = {
    "there is none yet": ([], PodResult()),
    "a pod of another name does not count": ([pod("Running", name=f"{PREPARE}-too")], PodResult()),
    "one that another NodeUpgrade made does not count": ([pod("Running", owner="before")], PodResult()),
    "it runs": ([pod("Running", state={"running": {}})], waiting()),
    "the kubelet has not seen it yet": ([pod("Pending")], silent()),
    "an order before the last says why it failed": (
        [pod("Failed", init=said(BUSY, 15), state={"waiting": {"reason": "PodInitializing"}})],
        failed(f"container driver ended with exit code 15: {msgspec.json.encode(BUSY).decode()}", BUSY),
    ),
    "what an order before the last said well explains nothing": (
        [pod("Failed", init=said(DONE), state={"terminated": KILLED})],
        failed("container prepare ended with exit code 137: Error"),
    ),
    "only the last order says that all is well": (
        [pod("Succeeded", init=said(DONE), state={"terminated": {"exitCode": 0, "message": "?"}})],
        failed("ended without a valid termination message: ?"),
    ),
    "it succeeded with an answer": (
        [pod("Succeeded", state=said(DONE))],
        PodResult(outcome=PodOutcome.SUCCEEDED, result=DONE),
    ),
    "it failed with an answer": (
        [pod("Failed", state=said(BUSY, 15))],
        failed(f"container prepare ended with exit code 15: {msgspec.json.encode(BUSY).decode()}", BUSY),
    ),
    "it ended well and says that it did not": (
        [pod("Succeeded", state=said(BUSY))],
        failed("exit code 0 contradicts the termination message", BUSY),
    ),
    "it ended well and says nothing that can be read": (
        [pod("Succeeded", state={"terminated": {"message": "hello"}})],
        failed("ended without a valid termination message: hello"),
    ),
    "it ended well and says nothing at all": (
        [pod("Succeeded", state={"terminated": {}})],
        failed("ended without a valid termination message: none"),
    ),
    "it was killed after it had said done": (
        [pod("Failed", state={"terminated": {**KILLED, "message": msgspec.json.encode(DONE).decode()}})],
        failed(f"container prepare ended with exit code 137: {msgspec.json.encode(DONE).decode()}"),
    ),
    "our own code failed, and the end of its log is the message": (
        [pod("Failed", state={"terminated": {"exitCode": 1, "message": "Traceback\n  KeyError: 'x'\n"}})],
        failed("container prepare ended with exit code 1: Traceback KeyError: 'x'"),
    ),
    "of a long log the end is shown": (
        [pod("Failed", state={"terminated": {"exitCode": 1, "message": "x" * 4000 + "why"}})],
        failed(f"container prepare ended with exit code 1: …{'x' * 297}why"),
    ),
    "an init container failed": (
        [
            pod(
                "Failed",
                init={"terminated": {"exitCode": 10, "message": "for kernel 6.1"}},
                state=waits("PodInitializing"),
            )
        ],
        failed("container driver ended with exit code 10: for kernel 6.1"),
    ),
    "the kubelet refused the pod": (
        [pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource")],
        failed("OutOfnvidia.com/gpu: Node didn't have enough resource"),
    ),
    "it was ended by its deadline": (
        [pod("Failed", reason="DeadlineExceeded", state={"terminated": KILLED})],
        failed("container prepare ended with exit code 137: Error"),
    ),
    "nobody says why it failed": ([pod("Failed")], failed("the pod failed")),
    "the registry says that an image is not there": (
        [pod("Pending", init=waits("ErrImagePull", NOT_FOUND))],
        failed(f"image r/driver@sha256:1 cannot be pulled: {NOT_FOUND}"),
    ),
    "backing off, with the same word of the registry": (
        [pod("Pending", init=waits("ImagePullBackOff", f'Back-off pulling image "r": ErrImagePull: {NOT_FOUND}'))],
        failed(f'image r/driver@sha256:1 cannot be pulled: Back-off pulling image "r": ErrImagePull: {NOT_FOUND}'),
    ),
    "the registry cannot be reached": (
        [pod("Pending", init=waits("ErrImagePull", NO_ROUTE))],
        waiting(f"image r/driver@sha256:1 cannot be pulled yet: {NO_ROUTE}"),
    ),
    "an image has no name that could be pulled": (
        [pod("Pending", init=waits("InvalidImageName", "couldn't parse"))],
        failed("image r/driver@sha256:1 cannot be pulled: couldn't parse"),
    ),
    "a container cannot be made": (
        [pod("Pending", state=waits("CreateContainerError", "no such device"))],
        waiting("container prepare does not start: no such device"),
    ),
    "it is only being made": ([pod("Pending", state=waits("ContainerCreating"))], silent()),
}


@pytest.mark.parametrize(("pods", "expected"), CASES.values(), ids=CASES)
def test_a_pod_is_read(pods, expected):
    assert prepare_result(pods, UPGRADE) == expected


def test_the_way_back_is_not_validated_by_the_pod_before_it():
    before = pod("Failed", name=VALIDATE, component="validate", state=said(BUSY, 18))
    after = pod("Succeeded", name=REVALIDATE, component="validate", state=said(DONE))
    assert validate_result([before, after], UPGRADE, reverting=False).outcome is PodOutcome.FAILED
    assert validate_result([before, after], UPGRADE, reverting=True) == PodResult(
        outcome=PodOutcome.SUCCEEDED, result=DONE
    )
    assert validate_result([before], UPGRADE, reverting=True) == PodResult()


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfnvidia.com/gpu"])
def test_a_validation_pod_that_its_kubelet_did_not_admit_says_nothing_about_the_node(reason):
    """A kubelet that has just started knows no device plugin."""
    refused = pod("Failed", component="validate", name=VALIDATE, reason=reason, message="Allocate failed")
    trouble = f"the kubelet did not admit the validation pod, which is created again: {reason}: Allocate failed"
    assert validate_result([refused], UPGRADE, reverting=False) == PodResult(trouble=trouble)


def test_one_that_has_run_was_admitted():
    ran = pod("Failed", component="validate", name=VALIDATE, reason="OutOfmemory", init=said(BUSY, 15))
    assert validate_result([ran], UPGRADE, reverting=False).outcome is PodOutcome.FAILED


def test_a_prepare_pod_that_is_not_admitted_has_failed():
    assert prepare_result([pod("Failed", reason="OutOfpods")], UPGRADE) == failed("OutOfpods")


def job(made="", *, suspend=False, started=False, **condition):
    conditions = [{"status": "True", **condition}] if condition else []
    meta = {"name": "upgrade", "uid": "j", "creationTimestamp": made}
    meta["annotations"] = {"gpu-upgrader.io/started": "true"} if started else {}
    return msgspec.convert({"metadata": meta, "spec": {"suspend": suspend}, "status": {"conditions": conditions}}, Job)


def upgrade_pod(phase, **changes):
    return pod(phase, **{"name": "upgrade-x", "component": "upgrade", "owner": "j", **changes})


JOBS = {
    "there is no Job yet": (None, [upgrade_pod("Running")], PodResult()),
    "it was made and not started": (job(suspend=True), [], PodResult(suspended=True)),
    "it was started, and somebody else has suspended it": (
        job(suspend=True, started=True),
        [],
        waiting("Job upgrade was suspended by another client"),
    ),
    "it has ended, and somebody else has suspended it": (
        job(suspend=True, started=True, type="Complete"),
        [],
        PodResult(outcome=PodOutcome.SUCCEEDED),
    ),
    "its first pod runs": (job(), [upgrade_pod("Running")], waiting()),
    "it has no pod yet": (
        job(made="2026-11-21T09:00:07Z"),
        [],
        silent("2026-11-21T09:00:07Z", uid="j", maker="upgrade"),
    ),
    "one pod died, the next runs": (
        job(),
        [upgrade_pod("Failed", created=1, state={"terminated": KILLED}), upgrade_pod("Running", created=2)],
        waiting(),
    ),
    "a pod reported a failure, and the Job has not said that it is over": (
        job(),
        [upgrade_pod("Failed", state=said(LATE, 16))],
        waiting(),
    ),
    "somebody holds the driver, and another pod looks again": (
        job(),
        [upgrade_pod("Failed", created=1, state=said(BUSY, 15)), upgrade_pod("Running", created=2)],
        PodResult(outcome=PodOutcome.WAITING, result=BUSY, trouble=BUSY.message),
    ),
    "somebody held the driver until the Job's time was over": (
        job(type="Failed", reason="DeadlineExceeded", message="Job was active longer than specified deadline"),
        [upgrade_pod("Failed", created=1, state=said(BUSY, 15))],
        failed(f"container upgrade ended with exit code 15: {msgspec.json.encode(BUSY).decode()}", BUSY),
    ),
    "a pod that cannot start is waited for even where its image is gone": (
        job(),
        [upgrade_pod("Pending", state=waits("ErrImagePull", NOT_FOUND))],
        waiting(f"image r/upgrader@sha256:2 cannot be pulled: {NOT_FOUND}"),
    ),
    "the second pod completed it": (
        job(type="Complete"),
        [
            upgrade_pod("Failed", created=2, state={"terminated": KILLED}),
            upgrade_pod("Succeeded", created=1, state=said(DONE)),
        ],
        PodResult(outcome=PodOutcome.SUCCEEDED, result=DONE),
    ),
    "it completed, and its pods were cleaned away": (
        job(type="Complete"),
        [],
        PodResult(outcome=PodOutcome.SUCCEEDED),
    ),
    "it completed, and its pod says otherwise": (
        job(type="Complete"),
        [upgrade_pod("Succeeded", state=said(BUSY))],
        failed("exit code 0 contradicts the termination message", BUSY),
    ),
    "it failed with the last pod's words": (
        job(type="Failed", reason="PodFailurePolicy", message="exit code 15"),
        [
            upgrade_pod("Failed", created=1, state={"terminated": KILLED}),
            upgrade_pod("Failed", created=2, state=said(BUSY, 15)),
        ],
        failed(f"container upgrade ended with exit code 15: {msgspec.json.encode(BUSY).decode()}", BUSY),
    ),
    "it took too long and left no pod": (
        job(type="Failed", reason="DeadlineExceeded", message="Job was active longer than specified deadline"),
        [],
        failed("DeadlineExceeded: Job was active longer than specified deadline"),
    ),
    "a pod of the way before is none of its own": (
        job(),
        [upgrade_pod("Pending", owner="another", state=waits("CreateContainerError", "no"))],
        waiting(),
    ),
}


@pytest.mark.parametrize(("found", "pods", "expected"), JOBS.values(), ids=JOBS)
def test_a_node_upgrade_job_is_read(found, pods, expected):
    assert upgrade_result(found, pods) == expected


def test_the_result_of_a_validation_has_that_of_its_programs():
    programs = OrderResult(reason=Reason.DONE, message="all-reduce: 478 GB/s", facts={"bandwidth": "478"})
    driver = OrderResult(reason=Reason.DONE, message="8 devices")
    ended = pod("Succeeded", state=said(msgspec.structs.replace(DONE, facts={"devices": "8"})), name=VALIDATE)
    inits = [{"name": name, "state": said(result)} for name, result in (("driver", driver), ("programs", programs))]
    status = msgspec.structs.replace(
        ended.status, init_container_statuses=msgspec.convert(inits, list[ContainerStatus])
    )
    assert validate_result([msgspec.structs.replace(ended, status=status)], UPGRADE, reverting=False) == PodResult(
        outcome=PodOutcome.SUCCEEDED,
        result=OrderResult(
            reason=Reason.DONE,
            message="well; all-reduce: 478 GB/s",
            facts={"devices": "8", "bandwidth": "478"},
        ),
    )
