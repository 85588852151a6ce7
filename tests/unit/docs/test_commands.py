"""Commands in the documentation: options and subcommands exist, targets of make exist, files of kubectl exist."""

import re
import shlex

import click
import pytest

from tests.support.repository import ROOT
from upgrader.cli.main import program

PAGES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if "design" not in path.parts
)
BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:upgrader|make|kubectl) [^`\[|\n]+)`")
KERNELS = {"make modules"}
"""Commands of a driver's build."""
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def lines(text):
    """Command lines of a page's blocks, with continued lines joined, without prompt, comment and pipe."""
    blocks = BLOCK.findall(text)
    shown = [block.replace("\\\n", " ") for language, block in blocks if language in {"", "bash", "sh", "console"}]
    for line in [*"\n".join(shown).splitlines(), *INLINE.findall(BLOCK.sub("", text))]:
        words = re.split(r"\s#|\s\||\s>|\s&&|;", line.removeprefix("$ ").strip())[0].strip()
        if words.startswith(("upgrader ", "make ", "kubectl ")):
            yield words


COMMANDS = sorted(
    {(line, str(page)) for page in PAGES for line in lines((ROOT / page).read_text()) if line not in KERNELS}
)


def parse(command, words, path):
    """Parse words with a click command and its subcommands, without conversion of values."""
    context = click.Context(command, info_name=path)
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if not isinstance(command, click.Group) or not rest:
        return
    name, found, rest = command.resolve_command(context, rest)
    parse(found, rest, f"{path} {name}")


def test_there_are_commands():
    assert len(COMMANDS) > 40


@pytest.mark.parametrize(("line", "page"), COMMANDS)
def test_a_command_of_a_page_exists(line, page):
    del page  # for the name of the test
    words = [word for word in shlex.split(line) if word not in {"…", "..."}]
    match words[0]:
        case "upgrader":
            parse(program, words[1:], "upgrader")
        case "make":
            assert [word for word in words[1:] if "=" not in word and word not in TARGETS] == []
        case "kubectl":
            files = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-f"]
            assert [
                file for file in files if file.startswith(("deploy/", "docs/")) and not (ROOT / file).exists()
            ] == []
