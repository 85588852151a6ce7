"""The initramfs of a boot check: the init process, the modules, and the order in which they are loaded."""

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
from upgrader.images.modules.values import ModuleFile, underscored_name
from upgrader.process import ProgramMissingError, run
from upgrader.process.places import cache_root, hold_lock

SOURCE = Path(__file__).with_name("init.c")
_SECONDS = 60.0
_SUFFIXES = (".ko", ".ko.xz")
_FILE = re.compile(r"[\w.-]+\.ko")


class Loading(Struct, frozen=True, kw_only=True):
    """Files in the order in which the kernel has to load them: the kernel's `own` modules, then the `given` modules."""

    own: tuple[Path, ...]
    given: tuple[Path, ...]
    modules: tuple[ModuleFile, ...]
    """The modules of `given`, in the same order."""


def plan_loading(kernel: BootKernel, given: Sequence[Path]) -> Loading:
    """Order the given modules, and those of the kernel's own that they need, by their dependencies.

    A kernel package has no modules.dep, which is written at its installation. This function uses the modules' field
    `depends`, which modules.dep is generated from.

    Raises:
        ModuleUnreadableError: one of the modules cannot be read.
        ConfigurationError: two of them have the same name, or a file's name has characters that a list cannot contain.
    """
    read = {(module := read_module(path)).name: (path, module) for path in given}
    odd = [path.name for path in given if not _FILE.fullmatch(path.name)]
    if odd or len(read) < len(given) or len({path.name for path in given}) < len(given):
        raise ConfigurationError(
            "these modules cannot be loaded together",
            details=", ".join(path.name for path in given),
            resolution="Each needs a unique name of letters, digits, dots, dashes and underscores.",
        )
    files = _own_modules(kernel.modules)
    ordered = _order_modules(
        [module.name for _path, module in read.values()], {name: module.depends for name, (_p, module) in read.items()}
    )
    own: dict[str, tuple[str, ...]] = {}
    waiting = [name for _path, module in read.values() for name in module.depends if name not in read]
    while waiting:
        name = waiting.pop()
        if name in files and name not in own:
            own[name] = read_module(files[name]).depends
            waiting += own[name]
    return Loading(
        own=tuple(files[name] for name in _order_modules(sorted(own), own)),
        given=tuple(read[name][0] for name in ordered),
        modules=tuple(read[name][1] for name in ordered),
    )


def _own_modules(folder: Path) -> dict[str, Path]:
    paths = (Path(at) / name for at, _folders, names in os.walk(folder / "kernel") for name in names)
    return {underscored_name(path.name.partition(".ko")[0]): path for path in paths if path.name.endswith(_SUFFIXES)}


def _order_modules(names: Iterable[str], depends: Mapping[str, Sequence[str]]) -> list[str]:
    """Each name after its dependencies. A cycle is broken where it is found, and the kernel rejects the module."""
    done: dict[str, None] = {}
    entered: set[str] = set()

    def add(name: str) -> None:
        if name in depends and name not in entered:
            entered.add(name)
            for dependency in depends[name]:
                add(dependency)
            done[name] = None

    for name in names:
        add(name)
    return list(done)


def pack_initramfs(loading: Loading, *, companions: Loading, work: Path) -> Path:
    """Write the initramfs into the folder `work`: the kernel's modules, then companions, then the modules to check.

    Raises:
        ConfigurationError: the init process cannot be compiled.
        ProcessError: busybox fails.
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
    """The path of init.c as a static program, compiled once per contents.

    Raises:
        ConfigurationError: it cannot be compiled on this machine.
    """
    folder = cache_root() / "boot"
    program = folder / f"init-{os.uname().machine}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    with hold_lock(folder / ".lock"):
        if not program.exists():
            beside = program.with_name(f".{program.name}")
            try:
                built = run(["gcc", "-static", "-Os", "-s", "-o", beside, SOURCE], timeout=_SECONDS, check=False)
            except ProgramMissingError as error:
                raise ConfigurationError("no C compiler", details=str(error), resolution=_COMPILER) from error
            if built.code != 0:
                output = built.stderr.decode(errors="replace")
                raise ConfigurationError(f"{SOURCE.name} does not compile", details=output, resolution=_COMPILER)
            beside.rename(program)
    return program


_COMPILER = "Install the Debian packages gcc and libc6-dev."
