"""What a boot check's machine starts with: our first process, the modules, and the order in which they are loaded."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.boot.values import BootKernel
from upgrader.images.modules.reading import module_bytes, read_module
from upgrader.images.modules.values import Module, underscored
from upgrader.process import ProgramMissingError, run
from upgrader.process.places import cache_root, locked

SOURCE = Path(__file__).with_name("init.c")
_SECONDS = 60.0
_SUFFIXES = (".ko", ".ko.xz")
_FILE = re.compile(r"[\w.-]+\.ko")


class Loading(Struct, frozen=True, kw_only=True):
    """Files in the order in which a kernel has to be given them: its `own`, then the `given` ones."""

    own: tuple[Path, ...]
    given: tuple[Path, ...]
    modules: tuple[Module, ...]
    """What `given` are, in the same order."""


def plan_loading(kernel: BootKernel, given: Sequence[Path]) -> Loading:
    """Modules after those that they import from: the given ones, and what they need of the kernel's own.

    A package of a kernel has no modules.dep (that is written when it is installed), so this follows `depends` of the
    modules, which modules.dep is made of.

    Raises:
        ModuleUnreadableError: one of the modules cannot be read.
        ConfigurationError: two of them have one name, or a file's name cannot stand in a list.
    """
    read = {(module := read_module(path)).name: (path, module) for path in given}
    odd = [path.name for path in given if not _FILE.fullmatch(path.name)]
    if odd or len(read) < len(given) or len({path.name for path in given}) < len(given):
        raise ConfigurationError(
            "these modules cannot be loaded together",
            details=", ".join(path.name for path in given),
            resolution="Each has to have a name of its own, of letters, digits, and dots, dashes and underscores.",
        )
    files = _own_modules(kernel.modules)
    ordered = _ordered(
        [one.name for _path, one in read.values()], {name: one.depends for name, (_p, one) in read.items()}
    )
    own: dict[str, tuple[str, ...]] = {}
    waiting = [name for _path, one in read.values() for name in one.depends if name not in read]
    while waiting:
        name = waiting.pop()
        if name in files and name not in own:
            own[name] = read_module(files[name]).depends
            waiting += own[name]
    return Loading(
        own=tuple(files[name] for name in _ordered(sorted(own), own)),
        given=tuple(read[name][0] for name in ordered),
        modules=tuple(read[name][1] for name in ordered),
    )


def _own_modules(folder: Path) -> dict[str, Path]:
    found = (Path(at) / name for at, _folders, names in os.walk(folder / "kernel") for name in names)
    return {underscored(path.name.partition(".ko")[0]): path for path in found if path.name.endswith(_SUFFIXES)}


def _ordered(names: Iterable[str], depends: Mapping[str, Sequence[str]]) -> list[str]:
    """Each name after those that it depends on; a circle is broken where it is met, and the kernel refuses it."""
    done: dict[str, None] = {}
    entered: set[str] = set()

    def upgrade(name: str) -> None:
        if name in depends and name not in entered:
            entered.add(name)
            for one in depends[name]:
                upgrade(one)
            done[name] = None

    for name in names:
        upgrade(name)
    return list(done)


def pack(loading: Loading, *, companions: Loading, work: Path) -> Path:
    """The initramfs as a file in the folder `work`: the kernel's modules, then companions, then what is checked.

    Raises:
        ConfigurationError: there is no compiler for our first process.
        ProcessError: busybox refuses.
    """
    tree = work / "initramfs"
    for folder in ("dev", "proc", "sys"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(first_process(), tree / "init")
    names: list[str] = []
    for path in dict.fromkeys([*companions.own, *loading.own]):
        names.append(path.name.removesuffix(".xz"))
        (tree / names[-1]).write_bytes(module_bytes(path))
    for path in [*companions.given, *loading.given]:
        names.append(path.name)
        shutil.copyfile(path, tree / path.name)
    (tree / "list").write_text("".join(f"{name}\n" for name in names))
    archive = work / "initramfs.cpio"
    members = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    run(["busybox", "cpio", "-o", "-H", "newc", "-F", archive], timeout=_SECONDS, cwd=tree, stdin=members.encode())
    return archive


def first_process() -> Path:
    """init.c as a static program, compiled once per contents.

    Raises:
        ConfigurationError: it cannot be compiled here.
    """
    folder = cache_root() / "boot"
    program = folder / f"init-{os.uname().machine}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    with locked(folder / ".lock"):
        if not program.exists():
            beside = program.with_name(f".{program.name}")
            try:
                built = run(["gcc", "-static", "-Os", "-s", "-o", beside, SOURCE], timeout=_SECONDS, check=False)
            except ProgramMissingError as error:
                raise ConfigurationError("no C compiler", details=str(error), resolution=_COMPILER) from error
            if built.code != 0:
                said = built.stderr.decode(errors="replace")
                raise ConfigurationError(f"{SOURCE.name} does not compile", details=said, resolution=_COMPILER)
            beside.rename(program)
    return program


_COMPILER = "Install the Debian packages gcc and libc6-dev."
