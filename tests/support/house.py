"""Figures of the code's layout: files in each package, lengths, names of functions and classes, lines of each image.

`python -m tests.support.house` prints them; tests/unit/docs/test_house.py holds the bounds.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from upgrader.images import image_parts

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "upgrader"
PACKAGES = (PACKAGE, ROOT / "dev" / "upgrader_dev")
GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def modules() -> list[Path]:
    """All modules that are written by hand."""
    found = (path for package in PACKAGES for path in package.rglob("*.py"))
    return sorted(path for path in found if not path.name.endswith(GENERATED))


def files_by_package() -> Counter[str]:
    """How many modules lie directly in each package, without its __init__."""
    return Counter(str(path.parent.relative_to(ROOT)) for path in modules() if path.name != "__init__.py")


def functions(path: Path) -> Iterator[str]:
    """Names of the functions at the top level of a module, without those that are named after a command."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            map(_makes_command, node.decorator_list)
        ):
            yield node.name


def _makes_command(decorator: ast.expr) -> bool:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(call, ast.Attribute) and call.attr in {"command", "group"}


def is_one_word(name: str) -> bool:
    """Whether a name is a single word, as `kept` or `_kept` are."""
    return "_" not in name.strip("_")


def one_word_functions() -> dict[str, list[str]]:
    """Functions with one-word names, by module."""
    found = {str(path.relative_to(ROOT)): [name for name in functions(path) if is_one_word(name)] for path in modules()}
    return {path: names for path, names in found.items() if names}


def repeated_class_names() -> dict[str, list[str]]:
    """Modules of each public class name that more than one class has."""
    named = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in sorted(named.items()) if len(paths) > 1}


def long_files(most: int) -> dict[str, int]:
    """Modules and tests with more lines than this, with their number of lines."""
    counts = {path: len(path.read_text().splitlines()) for path in (*modules(), *(ROOT / "tests").rglob("*.py"))}
    return {str(path.relative_to(ROOT)): count for path, count in sorted(counts.items()) if count > most}


def lines(parts: tuple[str, ...]) -> int:
    """Lines of the modules that an image carries, which are given as image_parts.NODE_PARTS are."""
    carried = (path for path in modules() if any(_lies_in(path, part) for part in parts))
    return sum(len(path.read_text().splitlines()) for path in carried)


def _lies_in(path: Path, part: str) -> bool:
    return path == PACKAGE / part or PACKAGE / part in path.parents


def main() -> None:
    """Print everything, the largest first."""
    for package, count in files_by_package().most_common(12):
        print(f"{count:4} files in {package}")
    names = one_word_functions()
    by_package = Counter({"/".join(path.split("/")[:2]): 0 for path in names})
    for path, found in names.items():
        by_package["/".join(path.split("/")[:2])] += len(found)
    print(f"{sum(by_package.values()):4} functions with one-word names")
    for package, count in by_package.most_common():
        print(f"     {count:4} in {package}")
    print(f"{lines(('',)):6} lines of the whole package")
    print(f"{lines(image_parts.CONTROLLER_PARTS):6} lines in the image of the controller")
    print(f"{lines(image_parts.NODE_PARTS):6} lines in the node image")


if __name__ == "__main__":
    main()
