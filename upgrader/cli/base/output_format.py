"""Results as JSON or YAML for programs: the wire types, which are stable; tests compare them with golden files."""

import sys
from typing import Any

import click
import msgspec

FORMATS = ("table", "json", "yaml")


def print_value(value: Any, form: str) -> None:  # noqa: ANN401 - any value that msgspec can write
    """Print a value to standard output."""
    sys.stdout.write(format_value(value, form))


def format_value(value: Any, form: str) -> str:  # noqa: ANN401 - any value that msgspec can write
    """A value as JSON with an indent of two, or as YAML, with a final line feed."""
    if form == "yaml":
        import yaml  # noqa: PLC0415 - rarely used

        plain = msgspec.json.decode(msgspec.json.encode(value))
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


output_option = click.option(
    "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format."
)
