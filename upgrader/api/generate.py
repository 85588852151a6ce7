"""`python -m upgrader.api.generate [--check] ROOT`: write all generated files.

A generator takes the root of the repository and returns the contents of files by relative path, and patterns of the
files that it owns. A file that it owns and does not generate any more is removed, or reported by --check.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.api import plan_page
from upgrader.api.crd import crd_files
from upgrader.api.drawing import phases_page
from upgrader.core.doctor.rights import Right, Scope


class Generator(Struct, frozen=True, kw_only=True):
    """`make` returns relative path -> contents; `owns` are glob patterns of all files that it can generate."""

    make: Callable[[Path], Mapping[str, str]]
    owns: tuple[str, ...]


def generate_crds(_root: Path) -> Mapping[str, str]:
    """The CustomResourceDefinitions, one file per kind."""
    return {f"crds/{name}": text for name, text in crd_files().items()}


def generate_pages(_root: Path) -> Mapping[str, str]:
    """Pages of the documentation that are generated from code."""
    return {
        "docs/reference/phases.md": phases_page(),
        "docs/reference/plan-json.md": plan_page.render_page(),
        "docs/reference/plan.schema.json": plan_page.plan_schema(),
    }


def generate_rights(root: Path) -> Mapping[str, str]:
    """Rights that deploy/ grants to the controller, for `upgrader doctor`, which is installed without deploy/."""
    import yaml  # noqa: PLC0415 - as in api.crd

    files = [path for name in ("rbac", "job-namespace") if (path := root / f"deploy/{name}.yaml").exists()]
    if not files:
        return {}
    documents = [document for path in files for document in yaml.safe_load_all(path.read_text())]
    rules = {
        (document["kind"], document["metadata"]["name"]): document["rules"]
        for document in documents
        if "rules" in document
    }
    rights = []
    for binding in (document for document in documents if "roleRef" in document):
        namespace = binding["metadata"].get("namespace", "")
        scope = Scope.JOBS if namespace == "NAMESPACE" else Scope.OWN if namespace else Scope.CLUSTER
        for rule in rules[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
            rights += [
                Right(scope=scope, verb=verb, group=group, resource=resource)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    lines = ",\n".join(f"  {msgspec.json.encode(right).decode()}" for right in rights)
    return {"upgrader/cli/doctor/rights.json": f"[\n{lines}\n]\n"}


PROTOS = {".": "upgrader/node/proto", "dev": "upgrader_dev/node/proto"}
"""Packages with .proto files, by the folder that they are imported from."""


def generate_stubs(root: Path) -> Mapping[str, str]:
    """Stubs and types for every .proto in PROTOS, importable as its package and *_pb2."""
    files: dict[str, str] = {}
    for source, package in PROTOS.items():
        stubs = _generate_package(root / source, package)
        files |= {str(Path(source) / path): text for path, text in stubs.items()}
    return files


def _generate_package(root: Path, package: str) -> Mapping[str, str]:
    from grpc_tools import protoc  # noqa: PLC0415 - a development tool, not needed at run time

    protos = sorted(str(path.relative_to(root)) for path in root.glob(f"{package}/*.proto"))
    if not protos:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{root}", *outputs, *protos]) != 0:
            raise SystemExit(f"protoc failed on one of {', '.join(protos)}; its output is above")
        generated = Path(folder)
        return {str(path.relative_to(generated)): path.read_text() for path in generated.rglob("*") if path.is_file()}


GENERATORS: tuple[Generator, ...] = (
    Generator(make=generate_crds, owns=("crds/*.yaml",)),
    Generator(
        make=generate_pages,
        owns=("docs/reference/phases.md", "docs/reference/plan-json.md", "docs/reference/plan.schema.json"),
    ),
    Generator(make=generate_rights, owns=("upgrader/cli/doctor/rights.json",)),
    Generator(
        make=generate_stubs,
        owns=tuple(
            str(Path(source) / package / pattern)
            for source, package in PROTOS.items()
            for pattern in ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")
        ),
    ),
)


def find_differences(root: Path, generators: tuple[Generator, ...] = GENERATORS) -> dict[str, str | None]:
    """Files that are not current: relative path -> current contents, None for files that are not generated any
    more.
    """
    result: dict[str, str | None] = {}
    for generator in generators:
        expected = generator.make(root)
        present = {str(path.relative_to(root)) for pattern in generator.owns for path in root.glob(pattern)}
        current = {path: (root / path).read_text() for path in present}
        result.update({path: text for path, text in expected.items() if current.get(path) != text})
        result.update(dict.fromkeys(present - set(expected)))
    return result


def main(arguments: list[str]) -> int:
    """Generate or check all files; the exit code is 1 if --check finds a file that is not current."""
    parser = argparse.ArgumentParser(prog="python -m upgrader.api.generate", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write no file; print the files that are not current and exit with code 1 if there are any",
    )
    parser.add_argument("root", type=Path, help="root of the repository")
    options = parser.parse_args(arguments)
    changes = find_differences(options.root)
    if options.check:
        for path in sorted(changes):
            sys.stderr.write(f"{path} is not current: run `make generate`\n")
        return 1 if changes else 0
    for path, text in sorted(changes.items()):
        write_file(options.root / path, text)
        sys.stdout.write(f"{'removed' if text is None else 'wrote'} {path}\n")
    return 0


def write_file(path: Path, text: str | None) -> None:
    """Write contents to a file; None removes the file."""
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
