"""What a forecast that was made again says otherwise."""

from upgrader.core.explain.forecast_diff import Outlook, describe_changes

SKIPPED, BUSY = ("gpu-3", "NodeSkipped"), ("default/Job/x", "GangUndeclared")


def test_what_changed_is_said_with_the_blockers_that_came_and_went():
    before = Outlook(nodes=5, interruptions=2, blocked=1, blockers=frozenset({BUSY}))
    after = Outlook(nodes=5, interruptions=1, blocked=2, blockers=frozenset({SKIPPED}))
    assert describe_changes(before, after) == (
        "1 gang(s) to stop instead of 2, 2 node(s) blocked instead of 1; now blocked: gpu-3 (NodeSkipped); "
        "no longer blocked: default/Job/x (GangUndeclared)"
    )


def test_the_same_is_no_news_and_many_holds_are_counted():
    assert describe_changes(Outlook(nodes=2), Outlook(nodes=2, blockers=frozenset({BUSY}))) == ""
    many = frozenset((f"gpu-{number}", "NodeSkipped") for number in range(5))
    said = describe_changes(Outlook(nodes=5), Outlook(nodes=0, blocked=5, blockers=many))
    assert said.endswith("gpu-0 (NodeSkipped), gpu-1 (NodeSkipped), gpu-2 (NodeSkipped) and 2 more")
