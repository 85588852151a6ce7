from datetime import UTC, datetime, timedelta

import pytest

from tests.support.facts import member
from upgrader.core.model.fleet import Terms
from upgrader.core.workloads.checkpoint_annotations import (
    CheckpointAnnotations,
    DeclaredTimes,
    Method,
    declared_times,
    find_leader,
    nearest_declared,
    parse_command,
    parse_seconds,
    usable_method,
)
from upgrader_dev.simulated.cluster.ports import START


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("45", 45)]
    + [(text, None) for text in ("", "0", "0s", "soon", "-5m", "1.5h", "5m 3s", "10ms", "m", "٣")],
)
def test_durations(text, expected):
    assert parse_seconds(text) == expected


def test_each_annotation_comes_from_the_nearest_that_has_it():
    pod = CheckpointAnnotations(container="main")
    owner = CheckpointAnnotations(method="file", container="sidecar", lane="fast")
    namespace = CheckpointAnnotations(method="none", timeout="5m", veto="x=true", lane="slow", max_loss="1m")
    assert nearest_declared([pod, owner, namespace]) == CheckpointAnnotations(
        method="file", timeout="5m", container="main", veto="x=true", lane="fast", max_loss="1m"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["/app/save", "--now"]', ("/app/save", "--now")),
        ('["/app/save", ""]', ("/app/save", "")),
        ("[]", ()),
        ('[""]', ()),
        ('["a", 1]', ()),
        ('["a\\u0000b"]', ()),
        ('"/app/save"', ()),
        ("/app/save", ()),
        ("", ()),
    ],
)
def test_a_command_is_a_list_of_words(text, expected):
    assert parse_command(text) == expected


def test_rank_0_leads_and_without_ranks_the_first_by_name():
    ranked = [member("b", "n", rank=1), member("c", "n", rank=0), member("a", "n")]
    assert find_leader(ranked).pod == "c"
    assert find_leader([member("b", "n"), member("a", "n")]).pod == "a"
    assert find_leader([]) is None


FAR = START + timedelta(days=5)
TIMES = {
    "nothing declared": (CheckpointAnnotations(), [START], None, DeclaredTimes()),
    "a time slice": (CheckpointAnnotations(min_runtime="2h"), [START], None, DeclaredTimes(min_runtime_seconds=7200)),
    "all the work counts from the latest start": (
        CheckpointAnnotations(expected_runtime="10h"),
        [START, START + timedelta(hours=1)],
        None,
        DeclaredTimes(ends_at=START + timedelta(hours=11)),
    ),
    "work that has not started ends nobody knows when": (
        CheckpointAnnotations(expected_runtime="10h"),
        [],
        None,
        DeclaredTimes(),
    ),
    "the end itself counts before the work in all": (
        CheckpointAnnotations(expected_runtime="10h", expected_completion="2026-11-22T09:00:00Z"),
        [START],
        None,
        DeclaredTimes(ends_at=datetime(2026, 11, 22, 9, tzinfo=UTC)),
    ),
    "its controller ends it": (CheckpointAnnotations(), [START], FAR, DeclaredTimes(ends_at=FAR)),
    "its controller ends it first": (
        CheckpointAnnotations(expected_completion="2027-11-22T09:00:00Z"),
        [START],
        FAR,
        DeclaredTimes(ends_at=FAR),
    ),
    "what cannot be read says nothing": (
        CheckpointAnnotations(min_runtime="long", expected_runtime="longer", expected_completion="late"),
        [START],
        None,
        DeclaredTimes(),
    ),
}


@pytest.mark.parametrize(("declared", "starts", "limit", "expected"), TIMES.values(), ids=TIMES)
def test_when_it_may_be_stopped_and_when_it_ends(declared, starts, limit, expected):
    assert declared_times(declared, starts, limit) == expected


MOUNTED, BARE = member("train-0", "a"), member("train-1", "b", mounted=False)


def by(*methods, **changes):
    """Usable: by these methods in this order."""
    terms = {name: value for name, value in changes.items() if name in Terms.__struct_fields__}
    rest = {name: value for name, value in changes.items() if name not in terms}
    return Method(name=methods[0], terms=Terms(methods=methods, **terms), **rest)


FILE_NEEDS = (
    "It declares file, but container trainer of pod train-1 does not mount the downward API with checkpoint-request "
    "and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/."
)
COMMAND = '["/app/save"]'
SHARING = member("train-0", "a", answers_mounted=True, shares_processes=True)
TABLE = {
    "exec with a command": (
        CheckpointAnnotations(method="exec", command=COMMAND),
        [BARE],
        by("exec", command=("/app/save",)),
    ),
    "exec without a command": (
        CheckpointAnnotations(method="exec"),
        [BARE],
        Method(
            problem="It declares exec, but its checkpoint-command is missing; write a JSON list such as "
            '["/app/save", "--now"].'
        ),
    ),
    "exec with a line for a shell": (
        CheckpointAnnotations(method="exec", command="save --now"),
        [BARE],
        Method(
            problem="It declares exec, but its checkpoint-command 'save --now' is not a JSON list of strings; "
            "write a JSON list such "
            'as ["/app/save", "--now"].'
        ),
    ),
    "http with port and path": (
        CheckpointAnnotations(method="http", endpoint=":8080/v1/checkpoint"),
        [BARE],
        by("http", endpoint=":8080/v1/checkpoint"),
    ),
    "http with a port alone": (
        CheckpointAnnotations(method="http", endpoint=":80"),
        [BARE],
        by("http", endpoint=":80"),
    ),
    "http without an endpoint": (
        CheckpointAnnotations(method="http"),
        [BARE],
        Method(
            problem="It declares http, but its checkpoint-endpoint is missing; write port and path, such as "
            ":8080/checkpoint."
        ),
    ),
    **{
        f"http at {wrong}": (
            CheckpointAnnotations(method="http", endpoint=wrong),
            [BARE],
            Method(
                problem=f"It declares http, but its checkpoint-endpoint {wrong!r} is none; write port and path, such "
                "as :8080/checkpoint."
            ),
        )
        for wrong in (
            "8080",
            ":0/x",
            ":99999/x",
            ":80/../../secrets",
            ":80/x?y",
            "http://elsewhere/",
            ":80/%2e%2e",
            ":80//x",
        )
    },
    "signal with a place for the answer": (
        CheckpointAnnotations(method="signal", signal="SIGUSR1"),
        [member("train-0", "a", mounted=False, answers_mounted=True)],
        by("signal", signal="SIGUSR1"),
    ),
    "signal without a place for the answer": (
        CheckpointAnnotations(method="signal", signal="SIGUSR1"),
        [BARE],
        Method(
            problem="It declares signal, but pod train-1 does not mount a volume at /run/checkpoint/ for the answer."
        ),
    ),
    "a signal that ends programs": (
        CheckpointAnnotations(method="signal", signal="SIGKILL"),
        [MOUNTED],
        Method(
            problem="It declares signal, but its checkpoint-signal 'SIGKILL' is not one of SIGUSR1, SIGUSR2, SIGHUP, "
            "SIGCONT, SIGURG, SIGWINCH, SIGALRM."
        ),
    ),
    "no signal at all": (
        CheckpointAnnotations(method="signal"),
        [MOUNTED],
        Method(problem="It declares signal, but its checkpoint-signal is missing."),
    ),
    "signal where process 1 is another": (
        CheckpointAnnotations(method="signal", signal="SIGUSR1"),
        [SHARING],
        Method(
            problem="It declares signal, but pod train-0 shares its process namespace: process 1 is not its program."
        ),
    ),
    "nothing declared": (CheckpointAnnotations(timeout="nonsense"), [MOUNTED], Method()),
    "file with its mounts": (CheckpointAnnotations(method="file"), [MOUNTED], by("file")),
    "with its longest checkpoint": (
        CheckpointAnnotations(method="file", timeout="10m"),
        [MOUNTED],
        by("file", timeout_seconds=600),
    ),
    "api needs no mounts": (CheckpointAnnotations(method="api"), [BARE], by("api")),
    "cannot checkpoint": (CheckpointAnnotations(method="none"), [BARE], Method(name="none")),
    "cannot checkpoint, whatever comes after that": (
        CheckpointAnnotations(method="none,api"),
        [BARE],
        Method(name="none"),
    ),
    "by file, and if that cannot be, not at all": (CheckpointAnnotations(method="file,none"), [MOUNTED], by("file")),
    "not by file, so not at all": (CheckpointAnnotations(method="file,none"), [BARE], Method(name="none")),
    "file where one member lacks the mounts": (
        CheckpointAnnotations(method="file"),
        [MOUNTED, BARE],
        Method(problem=FILE_NEEDS),
    ),
    "file where only the leader's mounts matter": (
        CheckpointAnnotations(method="file", scope="leader"),
        [MOUNTED, BARE],
        by("file", ack_scope="leader"),
    ),
    "the first that can be used": (CheckpointAnnotations(method="file ,api"), [BARE], by("api")),
    "all that can be used, in their order": (
        CheckpointAnnotations(method="api, file,api"),
        [MOUNTED],
        by("api", "file"),
    ),
    "the rest of what it says": (
        CheckpointAnnotations(method="file", max_loss="5m", on_deadline="skip-node", scope="all"),
        [MOUNTED],
        by("file", max_loss_seconds=300, on_deadline="skip-node"),
    ),
    "none that can be used": (
        CheckpointAnnotations(method="file,ftp"),
        [BARE],
        Method(
            problem=f"{FILE_NEEDS} Its checkpoint-method 'ftp' is not one of file, exec, http, signal, api, none.",
        ),
    ),
    "a container that is not there": (
        CheckpointAnnotations(method="file", container="train"),
        [member("train-0", "a", container="")],
        Method(problem="Its checkpoint-container 'train' is not in pod train-0."),
    ),
}


@pytest.mark.parametrize(("declared", "members", "method"), TABLE.values(), ids=TABLE.keys())
def test_what_can_be_used(declared, members, method):
    assert usable_method(declared, members) == method


UNREADABLE = {
    "timeout": ("soon", "Its checkpoint-timeout 'soon' is not a duration such as 90s, 30m or 1h30m, a week at most."),
    "min_runtime": ("-1h", "Its min-runtime '-1h' is not a duration such as 90s, 30m or 1h30m, ten years at most."),
    "expected_runtime": (
        "9999999999d",
        "Its expected-runtime '9999999999d' is not a duration such as 90s, 30m or 1h30m, ten years at most.",
    ),
    "max_loss": ("some", "Its max-loss 'some' is not a duration such as 90s, 30m or 1h30m, ten years at most."),
    "expected_completion": (
        "18:00",
        (
            "Its expected-completion-time '18:00' is not a time such as 2026-11-21T18:00:00Z or "
            "2026-11-21T18:00:00+01:00, of the years 1970 to 8999."
        ),
    ),
    "scope": ("rank0", "Its ack-scope 'rank0' is not one of all, leader."),
    "on_deadline": ("kill", "Its on-deadline 'kill' is not one of wait, skip-node, terminate."),
    "path": ("data/c", "Its checkpoint-path 'data/c' is not an absolute path without '..' (such as /data)."),
    "lane": ("a b", "Its checkpoint-lane 'a b' may contain only letters, digits, '-', '_', '.' and '/'."),
}


@pytest.mark.parametrize(("field", "said", "problem"), [(name, *case) for name, case in UNREADABLE.items()])
def test_a_job_that_says_something_that_cannot_be_read_is_not_asked(field, said, problem):
    assert usable_method(CheckpointAnnotations(method="api", **{field: said}), [MOUNTED]) == Method(problem=problem)
