"""How rarely Events are asked for."""

from datetime import UTC, datetime, timedelta

from upgrader.reconcile.facts.event_memory import AGAIN, AT_ONCE, EventMemory

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_an_object_is_asked_of_again_after_a_while_and_its_answer_is_kept_until_then():
    heard = EventMemory()
    assert (heard.is_due("a", NOW), heard.message_of("a")) == (True, None)
    heard.keep_message("a", "no route", NOW)
    assert (heard.is_due("a", NOW + AGAIN - SECOND), heard.is_due("a", NOW + AGAIN), heard.message_of("a")) == (
        False,
        True,
        "no route",
    )


def test_of_a_thousand_silent_objects_a_few_are_asked_of_in_a_second():
    heard, asked = EventMemory(), []
    for second in range(20):
        now = NOW + second * SECOND
        due = [key for key in map(str, range(1000)) if heard.is_due(key, now) and not heard.keep_message(key, "", now)]
        asked.append(len(due))
    assert asked == [AT_ONCE] * 20
    assert len(heard.messages) == AT_ONCE * 20


def test_what_nobody_asks_of_any_more_is_forgotten():
    heard = EventMemory()
    heard.keep_message("a", "no route", NOW)
    heard.keep_message("b", "", NOW + timedelta(hours=1))
    assert list(heard.messages) == ["b"]


def test_a_node_lacks_a_pod_since_it_was_first_seen_without():
    heard = EventMemory()
    assert heard.nodes_without_pod("s", "Driver", ["a", "b"], NOW) == {"a": NOW, "b": NOW}
    later = NOW + SECOND
    assert heard.nodes_without_pod("s", "Driver", ["a", "c"], later) == {"a": NOW, "c": later}
    assert heard.nodes_without_pod("t", "Driver", ["a"], later) == {"a": later}
    assert heard.nodes_without_pod("s", "Driver", ["b"], later) == {"b": later}
    heard.forget_stack("s")
    assert heard.nodes_without_pod("s", "Driver", ["b"], later + SECOND) == {"b": later + SECOND}
