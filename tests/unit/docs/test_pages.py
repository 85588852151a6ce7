"""Pages that say what code says are kept equal to it."""

import re

import click
import msgspec
import pytest

from tests.support.repository import ROOT, documented_manifests
from upgrader.api import names
from upgrader.api.kinds import KINDS
from upgrader.cli.main import program
from upgrader.cli.shared.stack_edits import spec_of
from upgrader.controller import crash
from upgrader.core.node_protocol import node_features
from upgrader.core.workloads import completion_estimate, desired_replicas, gang_rules, owner_objects
from upgrader.images.debian import archives
from upgrader.wiring import settings
from upgrader_dev.vendor import labels as sim_labels

MARKS = (ROOT / "docs/reference/labels-annotations-taints.md").read_text()
CLI = (ROOT / "docs/reference/cli.md").read_text()
TYPES = {kind.resource.kind: kind.resource.type for kind in KINDS}
MANIFESTS = dict(documented_manifests())


def values_of(module):
    for name, value in vars(module).items():
        if not name.startswith(("LABEL", "TAINT", "ANNOTATION", "FINALIZER")):
            continue
        yield from [value] if isinstance(value, str) else value


def marks_in_code():
    """Labels, annotations and taints of the operator that a module writes as literals."""
    pattern = re.compile(r"""(?:\{(?:names\.)?GROUP\}|gpu-upgrader\.io)/([a-z][a-z-]+)["']""")
    product = [folder for folder in (ROOT / "upgrader").iterdir() if folder.name != "api"]
    sources = [path for folder in (*product, ROOT / "dev/upgrader_dev/node") for path in folder.rglob("*.py")]
    return {f"{names.GROUP}/{name}" for path in sources for name in pattern.findall(path.read_text())}


CITING = {".py", ".md", ".yaml"}


def test_every_mark_is_listed_and_nothing_else():
    listed = set(re.findall(r"`([a-z0-9.-]+\.[a-z0-9.-]+/[A-Za-z0-9._-]+)`", MARKS))
    modules = (names, sim_labels, node_features, completion_estimate, gang_rules, desired_replicas, owner_objects)
    read = {mark for module in modules for mark in values_of(module)}
    assert listed == read | marks_in_code()


def test_every_annotation_for_job_authors_is_on_their_page():
    annotations = re.findall(r"^\| annotation `gpu-upgrader\.io/([a-z-]+)` .* job authors \|$", MARKS, re.MULTILINE)
    page = (ROOT / "docs/guides/job-authors/checkpointing.md").read_text()
    assert len(annotations) > 10
    assert [name for name in annotations if f"`{name}" not in page and f"/{name}" not in page] == []


def options(command, path=()):
    """Names of each option of a command and of all below it, with the words that lead there."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield " ".join(path), frozenset(parameter.opts)
    context = click.Context(command)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from options(command.get_command(context, name), (*path, name))


def test_every_option_of_the_command_line_is_documented():
    pages = CLI + (ROOT / "docs/contributing/dev-cluster.md").read_text()
    said = {"--help", "--version", *re.findall(r"(?<![\w-])--?[a-z][a-z-]*", pages)}
    assert [(where, sorted(one)) for where, one in options(program) if not one & said] == []


def test_every_setting_is_listed_and_nothing_else():
    listed = set(re.findall(r"`(UPGRADER_[A-Z_]+)`", CLI))
    known = set(settings.VARIABLES) | {archives.MIRROR, archives.KEYRING, archives.FROZEN}
    assert listed == known | {crash.CRASH_FILE, crash.FREEZE_AT, crash.FREEZE_FILE}


@pytest.mark.parametrize("where", MANIFESTS)
def test_every_manifest_in_the_documentation_is_one(where):
    manifest = MANIFESTS[where]
    decoded = msgspec.convert(manifest, TYPES[manifest["kind"]])
    assert decoded.metadata.name
    if manifest["kind"] == "GpuStack":
        spec_of(manifest["spec"], where)


def test_there_is_an_example_of_every_kind_that_people_write():
    kinds = {manifest["kind"] for where, manifest in MANIFESTS.items() if where.startswith("docs/examples/")}
    assert kinds == {"GpuStack", "UpgradePlan", "DriverImage"}


@pytest.mark.parametrize(
    "page",
    sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_inside_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_law_that_is_cited_is_defined():
    defined = re.findall(r"^## (\d+)\. ", (ROOT / "docs/concepts/laws.md").read_text(), re.MULTILINE)
    folders = ("upgrader", "tests", "docs", "deploy")
    texts = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in CITING]
    cited = {number for text in texts for number in re.findall(r"\blaw (\d+)", text, re.IGNORECASE)}
    assert defined == [str(number) for number in range(1, 11)]
    assert cited <= set(defined)
    assert cited


def test_the_notes_name_tests_that_are_there():
    """A defect that was settled stays so for as long as its test is there."""
    sources = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.name for path in sources}
    there |= {name for path in sources for name in re.findall(r"def (test_\w+)\(", path.read_text())}
    named = {
        name
        for page in (ROOT / "docs/contributing/design").glob("*.md")
        for name in re.findall(r"\btest_\w+(?:\.py)?", page.read_text())
    }
    assert named
    assert sorted(named - there) == []
