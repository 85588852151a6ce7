import pytest

from tests.support.facts import member
from upgrader.core.declarations import Declared, Method, nearest, seconds, usable


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("45", 45)]
    + [(text, None) for text in ("", "0", "0s", "soon", "-5m", "1.5h", "5m 3s", "10ms", "m")],
)
def test_durations(text, expected):
    assert seconds(text) == expected


def test_each_annotation_comes_from_the_nearest_that_has_it():
    pod = Declared(container="main")
    owner = Declared(method="file", container="sidecar")
    namespace = Declared(method="none", timeout="5m", veto="x=true")
    assert nearest([pod, owner, namespace]) == Declared(method="file", timeout="5m", container="main", veto="x=true")


MOUNTED, BARE = member("train-0", "a"), member("train-1", "b", mounted=False)
TABLE = {
    "nothing declared": (Declared(timeout="nonsense"), [MOUNTED], Method()),
    "file with its mounts": (Declared(method="file"), [MOUNTED], Method(name="file")),
    "with its longest checkpoint": (
        Declared(method="file", timeout="10m"),
        [MOUNTED],
        Method(name="file", timeout_seconds=600),
    ),
    "api needs no mounts": (Declared(method="api"), [BARE], Method(name="api")),
    "cannot checkpoint": (Declared(method="none"), [BARE], Method(name="none")),
    "file where one member lacks the mounts": (
        Declared(method="file"),
        [MOUNTED, BARE],
        Method(
            problem="It declares file, but container trainer of pod train-1 does not mount the downward API with "
            "checkpoint-request and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/."
        ),
    ),
    "the first that can be used": (Declared(method="exec, file ,api"), [BARE], Method(name="api")),
    "none that can be used": (
        Declared(method="exec,ftp"),
        [MOUNTED],
        Method(
            problem="Its checkpoint-method exec is not supported yet. "
            "Its checkpoint-method 'ftp' is none of file, api, none, exec, http, signal."
        ),
    ),
    "a time-out that cannot be read": (
        Declared(method="file", timeout="soon"),
        [MOUNTED],
        Method(problem="Its checkpoint-timeout 'soon' is no duration such as 90s, 30m or 1h30m."),
    ),
    "a container that is not there": (
        Declared(method="file", container="train"),
        [member("train-0", "a", container="")],
        Method(problem="Its checkpoint-container 'train' is not in pod train-0."),
    ),
}


@pytest.mark.parametrize(("declared", "members", "method"), TABLE.values(), ids=TABLE.keys())
def test_what_can_be_used(declared, members, method):
    assert usable(declared, members) == method
