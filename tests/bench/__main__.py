"""`make bench`: prints figures of this run and ratios between them; nothing here passes or fails by time."""

from tests.bench import forecast, plan


def main() -> None:
    """All benchmarks, the quick one first."""
    forecast.main()
    plan.main()


if __name__ == "__main__":
    main()
