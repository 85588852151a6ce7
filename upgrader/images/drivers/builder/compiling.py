"""Compiles a driver's modules: the source is unpacked, patched and compiled for exactly one kernel, then stripped."""

import shutil
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build import build_failures
from upgrader.core.driver_build.dkms import kernel_config, parse_dkms
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.images.drivers.builder.sandbox import Sandbox
from upgrader.images.drivers.builder.trees import Trees, make_root, unpack_package
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.process import ProgramTimeoutError

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SHORT_SECONDS = 120.0


class CompiledModules(Struct, frozen=True, kw_only=True):
    """Modules in load order, without debugging information. `headers` is the unpacked headers package."""

    modules: tuple[Path, ...]
    headers: Path
    base: Path
    """The toolchain's tree, which contains the programs of the image."""


class Broken(Struct, frozen=True, kw_only=True):
    """A failed build. `log` is the end of make's output."""

    failure: BuildFailure
    log: str = ""


class Compiler:
    """Compiles definitions. Several threads may compile at the same time, each in its own `work` folder."""

    def __init__(self, trees: Trees, packages: PackageStore, budget: BuildBudget) -> None:
        self._trees = trees
        self._packages = packages
        self._budget = budget

    def compile(self, definition: BuildDefinition, recipe: RecipeFolder, work: Path) -> CompiledModules | Broken:
        """Compile the modules of a definition.

        Raises:
            ArchiveError: a package cannot be had.
            ProcessError: the machine lacks namespaces or disk space.
            ConfigurationError: the source package does not match the recipe.
        """
        if reason := recipe.recipe.explain_refusal(definition.identity.kernel):
            return _unsupported_result(reason)
        base, headers = self._sandbox_layers(definition)
        folder = headers / "usr/src" / f"linux-headers-{definition.identity.kernel}"
        build = work / toolchain.BUILD
        self._lay_source(definition, recipe, work, build)
        if reason := _dkms_refusal(definition, build, folder):
            return _unsupported_result(reason)
        sandbox = Sandbox(
            layers=(headers, base), build=build, tokens=self._budget.tokens, memory_mib=recipe.recipe.memory_mib
        )
        sandbox.chown_build()
        with self._budget.reserve_share(recipe.recipe.memory_mib):
            if (broken := _apply_patches(sandbox, definition, recipe)) or (
                broken := _run_make(sandbox, definition, recipe)
            ):
                return broken
        return CompiledModules(modules=_module_paths(definition, build), headers=folder, base=base)

    def _sandbox_layers(self, definition: BuildDefinition) -> tuple[Path, Path]:
        chain = definition.toolchain
        name = f"toolchain-{chain.os}-{chain.compiler}"
        base = self._trees.unpacked_tree(name, chain.packages, toolchain.finish_tree)
        headers = self._trees.unpacked_tree(f"headers-{definition.identity.kernel}", definition.kernel.headers)
        return base, headers

    def _lay_source(self, definition: BuildDefinition, recipe: RecipeFolder, work: Path, build: Path) -> None:
        """Unpack the source into a folder of this build, since the source's configuration depends on the kernel."""
        if not definition.source:
            shutil.copytree(recipe.folder, build)
            return
        unpacked = work / "source"
        make_root(unpacked)
        for path in self._packages.fetch_all(definition.source):
            unpack_package(path, unpacked)
        folders = [path.parent for path in sorted((unpacked / "usr/src").glob("*/dkms.conf"))]
        if len(folders) != 1:
            raise ConfigurationError(
                f"{definition.source[0]} has no source for dkms", details="Expected one usr/src/*/dkms.conf."
            )
        folders[0].rename(build)
        for patch in recipe.recipe.patches:
            shutil.copy(recipe.folder / patch.file, build)


def _unsupported_result(reason: str) -> Broken:
    return Broken(failure=BuildFailure(kind=FailureClass.UNSUPPORTED, first_error=reason))


def _dkms_refusal(definition: BuildDefinition, build: Path, headers: Path) -> str:
    """The reason why the source's dkms.conf excludes this kernel; empty if it does not."""
    conf = build / "dkms.conf"
    if not conf.exists():
        return ""
    try:
        dkms = parse_dkms(conf.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"the dkms.conf of {definition.source[0]} is invalid", details=str(error)) from error
    if dkms.version != definition.identity.driver:
        raise ConfigurationError(f"{definition.source[0]} contains the source of {dkms.version}")
    config = kernel_config((headers / ".config").read_text(encoding="utf-8"))
    return dkms.explain_refusal(definition.identity.kernel, _MACHINES[definition.identity.arch], config)


def _apply_patches(sandbox: Sandbox, definition: BuildDefinition, recipe: RecipeFolder) -> Broken | None:
    identity = definition.identity
    for patch in recipe.recipe.patches:
        if not patch.is_applicable(identity.kernel, identity.driver):
            continue
        words = ["patch", "--strip=1", "--fuzz=0", "--batch", f"--input={patch.file}"]
        finished = sandbox.run(words, timeout=_SHORT_SECONDS)
        if finished.code != 0:
            failure = BuildFailure(kind=FailureClass.COMPILE, first_error=f"{patch.file} does not apply")
            return Broken(failure=failure, log=build_failures.last_lines(finished.text))
    return None


def _run_make(sandbox: Sandbox, definition: BuildDefinition, recipe: RecipeFolder) -> Broken | None:
    seconds = 60.0 * recipe.recipe.minutes
    identity = definition.identity
    arguments = recipe.recipe.make_arguments(
        kernel=identity.kernel, modules=definition.modules, version=identity.driver
    )
    try:
        finished = sandbox.run(["make", *arguments], timeout=seconds)
        if finished.code == 0:
            files = [f"{name}.ko" for name in definition.modules]
            finished = sandbox.run(["strip", "--strip-debug", *files], timeout=_SHORT_SECONDS)
    except ProgramTimeoutError as error:
        return Broken(
            failure=build_failures.timeout_failure(seconds), log=build_failures.last_lines(error.finished.text)
        )
    if finished.code == 0:
        return None
    output = finished.text or finished.stderr.decode(errors="replace")
    return Broken(failure=build_failures.exit_failure(output, finished.code), log=build_failures.last_lines(output))


def _module_paths(definition: BuildDefinition, build: Path) -> tuple[Path, ...]:
    return tuple(build / f"{name}.ko" for name in definition.modules)
