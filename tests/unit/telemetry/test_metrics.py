"""What Prometheus reads."""

from prometheus_client import generate_latest

from upgrader.telemetry import metrics


def test_a_reason_that_is_gone_shows_nothing():
    metrics.show_holds("one", {"GangNotComplete": 2, "NoImage": 1})
    metrics.show_holds("two", {"NoImage": 4})
    metrics.show_holds("one", {"NoImage": 3})
    lines = [
        line
        for line in generate_latest(metrics.REGISTRY).decode().splitlines()
        if "upgrader_holds{" in line and ("one" in line or "two" in line)
    ]
    assert lines == [
        'upgrader_holds{plan="two",reason="NoImage"} 4.0',
        'upgrader_holds{plan="one",reason="NoImage"} 3.0',
    ]
    metrics.show_holds("one", {})
    metrics.show_holds("two", {})


def test_every_metric_is_ours_and_described():
    families = list(metrics.REGISTRY.collect())
    assert [family.name for family in families if not family.name.startswith("upgrader_")] == []
    assert [family.name for family in families if not family.documentation.endswith(".")] == []
