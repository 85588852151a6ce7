from tests.bench.page import page
from tests.support.repository import ROOT


def test_the_page_is_what_the_code_foresees():
    assert page() == (ROOT / "docs/contributing/forecast-1750.md").read_text(), (
        "python -m tests.bench.page > docs/contributing/forecast-1750.md, and read the diff"
    )
