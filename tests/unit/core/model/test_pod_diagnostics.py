"""Of which silent pods Events are read."""

from datetime import UTC, datetime, timedelta

from upgrader.core.model.pod_diagnostics import SILENT, Silence, choose_silences, long_silent

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
LONG = NOW - SILENT


def pod(node, since=LONG):
    return node, Silence(since=since, uid=f"uid-{node}")


def test_only_what_is_silent_for_long_is_asked_about():
    just = NOW - SILENT + timedelta(seconds=1)
    assert [long_silent(one, NOW) for one in (None, Silence(since=just), Silence(since=LONG))] == [False, False, True]
    assert choose_silences([pod("a", just), pod("b"), ("c", None)], NOW, 3) == {"uid-b"}


def test_of_many_silent_pods_the_first_by_node_are_asked_about_in_any_order():
    pods = [pod(node) for node in "edcba"]
    for given_ in (pods, pods[::-1]):
        assert choose_silences(given_, NOW, 3) == {"uid-a", "uid-b", "uid-c"}


def test_what_makes_no_pod_on_many_nodes_is_asked_once_and_takes_no_place_of_a_pod():
    lacking = [(node, Silence(since=LONG, maker="driver-1")) for node in "abcd"]
    assert choose_silences([*lacking, pod("e"), pod("f")], NOW, 1) == {"driver-1", "uid-e"}
