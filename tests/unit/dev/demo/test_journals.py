"""The numbers of the demo come from journals; these tables say what a journal means."""

import json

from upgrader_dev.demo.audit import (
    AuditEvent,
    AuditMetadata,
    Body,
    ObjectRef,
    Regarding,
    ResponseStatus,
    User,
    writes_per_node,
)
from upgrader_dev.demo.journals import MemberHistory, parse_lines, summarize_journal


def _journal(*events: tuple[float, str, int, str]) -> bytes:
    return b"".join(
        json.dumps(
            {"time": time, "event": event, "step": step, "member": 1, "pod": pod, "node": "a", "loss": 0.1}
        ).encode()
        + b"\n"
        for time, event, step, pod in events
    )


def test_a_job_that_was_never_interrupted_lost_nothing() -> None:
    told = summarize_journal(
        parse_lines(_journal((0, "start", 0, "p"), (0, "resume", 0, "p"), (1, "step", 1, "p"), (2, "step", 2, "p")))
    )
    assert told == MemberHistory(
        member=1,
        steps_done=2,
        interruptions=0,
        resumed_from=None,
        steps_lost=0,
        seconds_not_running=0.0,
        refusals=0,
        finished=False,
        pods=("p",),
        nodes=("a",),
    )


def test_steps_after_the_checkpoint_are_lost() -> None:
    told = summarize_journal(
        parse_lines(
            _journal(
                (0, "start", 0, "p"),
                (1, "step", 9, "p"),
                (2, "step", 10, "p"),
                (2, "stop", 10, "p"),
                (30, "start", 0, "q"),
                (31, "resume", 7, "q"),
                (32, "step", 8, "q"),
                (33, "step", 11, "q"),
            )
        )
    )
    assert told == MemberHistory(
        member=1,
        steps_done=11,
        interruptions=1,
        resumed_from=7,
        steps_lost=3,
        seconds_not_running=30.0,
        refusals=0,
        finished=False,
        pods=("p", "q"),
        nodes=("a",),
    )


def test_a_refusal_and_the_end_are_told() -> None:
    told = summarize_journal(
        parse_lines(
            _journal(
                (0, "start", 0, "p"),
                (1, "step", 1, "p"),
                (1, "refuse", 1, "p"),
                (2, "step", 2, "p"),
                (2, "done", 2, "p"),
            )
        )
    )
    assert (told.refusals, told.finished, told.interruptions) == (1, True, 0)


def test_a_half_written_last_line_does_not_count() -> None:
    assert parse_lines(_journal((1, "step", 1, "p")) + b'{"time": 2, "ev') == parse_lines(_journal((1, "step", 1, "p")))


def _write(
    verb: str,
    resource: str,
    name: str = "",
    *,
    user: str = "us",
    namespace: str = "",
    at: str = "2026-01-02",
    made: str = "",
    about: tuple[str, str] = ("", ""),
    code: int = 200,
    query: str = "",
) -> AuditEvent:
    ref = ObjectRef(resource=resource, namespace=namespace, name=name)
    body = Body(metadata=AuditMetadata(name=made), involved_object=Regarding(kind=about[0], name=about[1]))
    return AuditEvent(
        verb=verb,
        request_uri=f"/api/v1/{resource}{query}",
        user=User(username=user),
        object_ref=ref,
        request_received_timestamp=at,
        request_object=body,
        response_status=ResponseStatus(code=code),
    )


def test_writes_count_for_the_node_they_are_about() -> None:
    log = [
        _write("create", "nodeupgrades", made="upgrade-a"),
        _write("patch", "nodeupgrades", "upgrade-a"),
        _write("patch", "nodes", "node-a"),
        _write("patch", "nodes", "node-b"),
        _write("create", "pods", namespace="upgrader", made="prepare-b"),
        _write("create", "pods", namespace="upgrader", made="prepare-b", query="?fieldManager=upgrader&dryRun=All"),
        _write("create", "events", namespace="default", about=("Node", "node-b")),
        _write("create", "events", namespace="default", about=("Job", "trainer")),
        _write("patch", "pods", "trainer-0", namespace="default"),
        _write("patch", "nodes", "node-a", user="kubelet"),
        _write("patch", "nodes", "node-a", at="2026-01-01"),
        _write("get", "nodes", "node-a"),
        _write("patch", "nodes", "node-a", code=409),
    ]
    counted = writes_per_node(
        log,
        user="us",
        since="2026-01-02",
        namespace="upgrader",
        upgrades={"upgrade-a": "node-a", "upgrade-b": "node-b", "prepare-b": "node-b"},
    )
    assert counted == {"node-a": 3, "node-b": 3}
