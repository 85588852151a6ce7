"""Results as JSON or YAML for programs: the wire types, stable; golden files hold them."""

import sys
from typing import Any

import click
import msgspec

FORMATS = ("table", "json", "yaml")


def show(value: Any, form: str) -> None:  # noqa: ANN401 - any value that msgspec can write
    """Print to standard output."""
    sys.stdout.write(text(value, form))


def text(value: Any, form: str) -> str:  # noqa: ANN401 - any value that msgspec can write
    """JSON with an indent of two, or YAML; ends with a line feed."""
    if form == "yaml":
        import yaml  # noqa: PLC0415 - few people ask for it

        plain = msgspec.json.decode(msgspec.json.encode(value))
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


output_option = click.option(
    "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How the result is written."
)
