from pathlib import Path

from tests.bench.page import page


def test_the_page_is_what_the_code_foresees():
    assert page() == Path("docs/forecast-1750.md").read_text(encoding="utf-8"), (
        "python -m tests.bench.forecast --page > docs/forecast-1750.md, and read the diff"
    )
