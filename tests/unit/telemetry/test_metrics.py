"""What Prometheus reads."""

from prometheus_client import generate_latest

from upgrader.telemetry import metrics


def test_a_reason_that_is_gone_shows_nothing():
    metrics.show_blockers("one", {"GangNotComplete": 2, "NoImage": 1})
    metrics.show_blockers("two", {"NoImage": 4})
    metrics.show_blockers("one", {"NoImage": 3})
    lines = [
        line
        for line in generate_latest(metrics.REGISTRY).decode().splitlines()
        if "upgrader_blockers{" in line and ("one" in line or "two" in line)
    ]
    assert lines == [
        'upgrader_blockers{plan="two",reason="NoImage"} 4.0',
        'upgrader_blockers{plan="one",reason="NoImage"} 3.0',
    ]
    metrics.show_blockers("one", {})
    metrics.show_blockers("two", {})


def test_every_metric_has_the_prefix_and_a_description():
    families = list(metrics.REGISTRY.collect())
    assert [family.name for family in families if not family.name.startswith("upgrader_")] == []
    assert [family.name for family in families if not family.documentation.endswith(".")] == []
