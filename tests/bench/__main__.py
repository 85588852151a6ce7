"""`make bench`: prints figures of this run and ratios between them; nothing here passes or fails by time."""

from tests.bench import driver_images, forecast, plan, resync, simulate
from tests.bench.report import PATH, Report


def main() -> None:
    """All benchmarks, the quick ones first; what was found until a failure is kept."""
    report = Report()
    try:
        forecast.main(report)
        simulate.main(report)
        plan.main(report)
        resync.main(report)
        driver_images.main(report)
    finally:
        report.write()
    print(PATH)  # noqa: T201 - a bench prints


if __name__ == "__main__":
    main()
