"""What Prometheus reads."""

from prometheus_client import generate_latest

from upgrader.telemetry import metrics


def test_a_reason_that_is_gone_shows_nothing():
    metrics.show_holds({"GangNotComplete": 2, "NoImage": 1})
    metrics.show_holds({"NoImage": 3})
    lines = [line for line in generate_latest(metrics.REGISTRY).decode().splitlines() if "upgrader_holds{" in line]
    assert lines == ['upgrader_holds{reason="NoImage"} 3.0']


def test_every_metric_is_ours_and_described():
    families = list(metrics.REGISTRY.collect())
    assert [family.name for family in families if not family.name.startswith("upgrader_")] == []
    assert [family.name for family in families if not family.documentation.endswith(".")] == []
