"""From packages and a recipe to stripped modules: the source unpacked, patched and compiled for exactly one kernel."""

import shutil
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build import build_failures
from upgrader.core.driver_build.dkms import kernel_config, parse_dkms
from upgrader.core.driver_build.driver_builds import Failure, FailureClass
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.budget import Budget
from upgrader.images.drivers.builder.sandbox import Sandbox
from upgrader.images.drivers.builder.trees import Trees, make_root, unpack
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.process import ProgramTimeoutError

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SHORT_SECONDS = 120.0


class Compiled(Struct, frozen=True, kw_only=True):
    """Modules in load order, without debugging information; `headers` is the unpacked headers package."""

    modules: tuple[Path, ...]
    headers: Path
    base: Path
    """The toolchain's tree, which the programs of the image are taken from."""


class Broken(Struct, frozen=True, kw_only=True):
    """It cannot be built. `log` is the end of what make said."""

    failure: Failure
    log: str = ""


class Compiler:
    """Compiles one definition after another; several may do so at once, in a `work` folder each."""

    def __init__(self, trees: Trees, packages: PackageStore, budget: Budget) -> None:
        self._trees = trees
        self._packages = packages
        self._budget = budget

    def compile(self, definition: Definition, recipe: RecipeFolder, work: Path) -> Compiled | Broken:
        """Compile the modules of a definition.

        Raises:
            ArchiveError: a package cannot be had.
            ProcessError: the machine does not let us: no namespaces, no space.
            ConfigurationError: the source package is not what the recipe takes it for.
        """
        if reason := recipe.recipe.refusal(definition.identity.kernel):
            return _unsupported(reason)
        base, headers = self._layers(definition)
        folder = headers / "usr/src" / f"linux-headers-{definition.identity.kernel}"
        build = work / toolchain.BUILD
        self._lay_source(definition, recipe, work, build)
        if reason := _refusal(definition, build, folder):
            return _unsupported(reason)
        sandbox = Sandbox(
            layers=(headers, base), build=build, tokens=self._budget.tokens, memory_mib=recipe.recipe.memory_mib
        )
        sandbox.own()
        with self._budget.share(recipe.recipe.memory_mib):
            if (broken := _patch(sandbox, definition, recipe)) or (broken := _make(sandbox, definition, recipe)):
                return broken
        return Compiled(modules=_collect(definition, build), headers=folder, base=base)

    def _layers(self, definition: Definition) -> tuple[Path, Path]:
        chain = definition.toolchain
        base = self._trees.tree(f"toolchain-{chain.os}-{chain.compiler}", chain.packages, toolchain.finish)
        headers = self._trees.tree(f"headers-{definition.identity.kernel}", definition.kernel.headers)
        return base, headers

    def _lay_source(self, definition: Definition, recipe: RecipeFolder, work: Path, build: Path) -> None:
        """A tree for this build alone: what the source finds out about a kernel stays in it."""
        if not definition.source:
            shutil.copytree(recipe.folder, build)
            return
        unpacked = work / "source"
        make_root(unpacked)
        for path in self._packages.fetch_all(definition.source):
            unpack(path, unpacked)
        found = [path.parent for path in sorted((unpacked / "usr/src").glob("*/dkms.conf"))]
        if len(found) != 1:
            raise ConfigurationError(
                f"{definition.source[0]} has no source for dkms", details="Looked for one usr/src/*/dkms.conf."
            )
        found[0].rename(build)
        for patch in recipe.recipe.patches:
            shutil.copy(recipe.folder / patch.file, build)


def _unsupported(reason: str) -> Broken:
    return Broken(failure=Failure(kind=FailureClass.UNSUPPORTED, first_error=reason))


def _refusal(definition: Definition, build: Path, headers: Path) -> str:
    """What the source's own dkms.conf says against this kernel."""
    conf = build / "dkms.conf"
    if not conf.exists():
        return ""
    try:
        said = parse_dkms(conf.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(
            f"the dkms.conf of {definition.source[0]} cannot be used", details=str(error)
        ) from error
    if said.version != definition.identity.driver:
        raise ConfigurationError(f"{definition.source[0]} holds the source of {said.version}")
    config = kernel_config((headers / ".config").read_text(encoding="utf-8"))
    return said.refusal(definition.identity.kernel, _MACHINES[definition.identity.arch], config)


def _patch(sandbox: Sandbox, definition: Definition, recipe: RecipeFolder) -> Broken | None:
    identity = definition.identity
    for patch in recipe.recipe.patches:
        if not patch.wanted(identity.kernel, identity.driver):
            continue
        words = ["patch", "--strip=1", "--fuzz=0", "--batch", f"--input={patch.file}"]
        finished = sandbox.run(words, timeout=_SHORT_SECONDS)
        if finished.code != 0:
            failure = Failure(kind=FailureClass.COMPILE, first_error=f"{patch.file} does not apply")
            return Broken(failure=failure, log=build_failures.last_lines(finished.text))
    return None


def _make(sandbox: Sandbox, definition: Definition, recipe: RecipeFolder) -> Broken | None:
    seconds = 60.0 * recipe.recipe.minutes
    identity = definition.identity
    arguments = recipe.recipe.arguments(kernel=identity.kernel, modules=definition.modules, version=identity.driver)
    try:
        finished = sandbox.run(["make", *arguments], timeout=seconds)
        if finished.code == 0:
            files = [f"{name}.ko" for name in definition.modules]
            finished = sandbox.run(["strip", "--strip-debug", *files], timeout=_SHORT_SECONDS)
    except ProgramTimeoutError as error:
        return Broken(failure=build_failures.overdue(seconds), log=build_failures.last_lines(error.finished.text))
    if finished.code == 0:
        return None
    said = finished.text or finished.stderr.decode(errors="replace")
    return Broken(failure=build_failures.ended(said, finished.code), log=build_failures.last_lines(said))


def _collect(definition: Definition, build: Path) -> tuple[Path, ...]:
    return tuple(build / f"{name}.ko" for name in definition.modules)
