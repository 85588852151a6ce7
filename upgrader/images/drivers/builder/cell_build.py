"""Builds one cell: compile, sign, check, assemble and boot, then store the image.

The image is stored only after all steps have passed. A killed build leaves a work folder, which the next build with the
same key removes.
"""

import shutil
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Verdict
from upgrader.images import boot
from upgrader.images.boot.values import Boot
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.assembly import ImageContents, assemble_image, lay_files, take_modules
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.images.drivers.builder.compiling import Broken, Compiler
from upgrader.images.drivers.builder.image_store import FailureStore, ImageRecord, Shelf
from upgrader.images.drivers.builder.sandbox import check_sandbox
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.services import ShippedService, find_service_faults, shipped_services
from upgrader.images.layout import Layout
from upgrader.images.modules.signing import ModuleSigningKey, certificate_key_id, sign_module
from upgrader.images.modules.verify import verify_modules
from upgrader.process import ProgramFailedError
from upgrader.process.places import Progress, hold_lock, write_atomically

_BOOT_MIB = 1024
_CLASSES = {
    CheckName.CRC: FailureClass.CRC,
    CheckName.VERMAGIC: FailureClass.VERMAGIC,
    CheckName.SIGNATURE: FailureClass.SIGNATURE,
    CheckName.BOOT: FailureClass.BOOT,
}
"""Other checks fail if make reported success with a wrong result, which counts as a compile failure."""


class BuildFolders(Struct, frozen=True, kw_only=True):
    """Folders: `cache` for files that can be rebuilt, `logs` for the ends of failed builds' logs."""

    cache: Path
    logs: Path


class Workshop:
    """Builds cells. Several threads may call it at the same time.

    Args:
        signer: signs the modules; the definitions name its certificate.
    """

    def __init__(
        self,
        *,
        places: BuildFolders,
        packages: PackageStore,
        shelf: Shelf,
        budget: BuildBudget,
        progress: Progress,
        signer: ModuleSigningKey | None = None,
    ) -> None:
        self._places = places
        self._packages = packages
        self._shelf = shelf
        self._remembered = FailureStore(shelf.folder, progress)
        self._progress = progress
        self._signer = signer
        self._budget = budget
        self._trees = Trees(places.cache / "trees", packages, progress)
        self._compiler = Compiler(self._trees, packages, budget)

    def check_machine(self) -> None:
        """Check whether modules can be compiled on this machine, once before a run.

        If no toolchain is unpacked yet, there is nothing to check, and each cell fails individually.

        Raises:
            SandboxError: the sandbox does not work.
        """
        for root in sorted((self._places.cache / "trees").glob("toolchain-*"))[:1]:
            check_sandbox(root, self._budget.tokens)

    def build(self, definition: BuildDefinition, recipe: RecipeFolder) -> BuildResult:
        """The image of a definition: the stored one, or a new one, or the reason for a failure.

        Raises:
            ConfigurationError: recipe, source, key or machine is invalid; the failure is not stored.
            OSError: the result cannot be stored.
        """
        key = definition.key
        work = self._places.cache / "work" / key
        lock = work.with_name(f".{key}.lock")
        with hold_lock(lock, lambda: self._report(definition, "waiting for another build of the same key")):
            known = self.find_result(definition)
            if known is not None:
                return known
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            try:
                result = self._build_new(definition, recipe, work)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            self._remembered.add_failure(result)
        return result

    def find_result(self, definition: BuildDefinition) -> BuildResult | None:
        """The stored result of this definition; None if it has to be built."""
        return self._shelf.find_result(definition.key) or self._remembered.find_failure(definition.key)

    def _build_new(self, definition: BuildDefinition, recipe: RecipeFolder, work: Path) -> BuildResult:
        started = time.monotonic()
        try:
            outcome = self._build_image(definition, recipe, work)
        except ArchiveError as error:
            # The signed index lists the package: a mirror or proxy that lacks it is no result about driver and kernel.
            outcome = Broken(failure=BuildFailure(kind=FailureClass.TRANSIENT, first_error=error.brief), log=str(error))
        except ProgramFailedError as error:
            outcome = Broken(failure=BuildFailure(kind=FailureClass.TRANSIENT, first_error=error.brief), log=str(error))
        except OSError as error:
            outcome = Broken(failure=BuildFailure(kind=FailureClass.TRANSIENT, first_error=str(error)))
        seconds = time.monotonic() - started
        if isinstance(outcome, Broken):
            return self._red_result(definition, outcome, seconds)
        layout, verdicts = outcome
        record = ImageRecord(
            identity=definition.identity,
            build_key=definition.key,
            digest=layout.image.digest,
            seconds=seconds,
            verdicts=verdicts,
        )
        self._shelf.add_image(layout, record)
        self._report(definition, f"built in {seconds:.0f} s, {layout.size / 1e6:.1f} MB compressed")
        return BuildResult(
            identity=definition.identity,
            state=CellState.GREEN,
            digest=record.digest,
            build_key=record.build_key,
            seconds=seconds,
            checks=verdicts,
        )

    def _build_image(
        self, definition: BuildDefinition, recipe: RecipeFolder, work: Path
    ) -> tuple[Layout, tuple[Verdict, ...]] | Broken:
        self._report(definition, f"compiling {' '.join(definition.modules)}")
        compiled = self._compiler.compile(definition, recipe, work)
        if isinstance(compiled, Broken):
            return compiled
        for module in compiled.modules:
            if self._signer is not None:
                sign_module(module, self._signer)
        files = work / "files"
        lay_files(definition, recipe, self._packages, files, work / "packages")
        services = shipped_services(recipe, definition.services, files)
        verdicts = self._verify_modules(definition, compiled.modules, compiled.headers, files, services)
        if (broken := _first_failed(verdicts)) is not None:
            return broken
        self._report(definition, "checked; assembling the image")
        layout = assemble_image(
            definition,
            recipe,
            ImageContents(
                modules=tuple(compiled.modules),
                files=files,
                services=tuple(services),
                verdicts=verdicts,
                signer_key_id=certificate_key_id(self._signer.certificate) if self._signer is not None else "",
            ),
            base=compiled.base,
            layout=work / "layout",
        )
        booted, seen = self.boot_image(definition, layout, work / "shipped")
        broken = boot_failure(booted, seen)
        return broken if broken is not None else (layout, (*verdicts, booted))

    def _verify_modules(
        self,
        definition: BuildDefinition,
        modules: tuple[Path, ...],
        headers: Path,
        files: Path,
        services: tuple[ShippedService, ...],
    ) -> tuple[Verdict, ...]:
        driver, tree = definition.identity.driver, files if files.is_dir() else None
        return verify_modules(
            modules,
            headers=headers,
            driver=driver,
            expected=definition.modules,
            tree=tree,
            faults=tuple(find_service_faults(services, driver, tree)),
            certificate=self._signer.certificate if self._signer else None,
        )

    def boot_image(self, definition: BuildDefinition, layout: Layout, work: Path) -> tuple[Verdict, Boot]:
        """Boot the exact kernel with the modules in the image."""
        kernel = definition.kernel
        self._report(definition, "booting its kernel")
        tree = self._trees.unpacked_tree(f"kernel-{kernel.release}", kernel.image)
        modules = take_modules(layout, work)
        with self._budget.reserve_share(_BOOT_MIB):  # emulation uses a whole core
            return boot.boot_modules(boot.find_kernel(tree, kernel.release), modules)

    def _red_result(self, definition: BuildDefinition, broken: Broken, seconds: float) -> BuildResult:
        failure = broken.failure
        write_atomically(self._places.logs / f"{definition.key}.log", f"{broken.log}\n".encode())
        self._report(definition, f"{failure.kind}: {failure.first_error}")
        return BuildResult(
            identity=definition.identity,
            state=CellState.RED,
            failure=failure,
            build_key=definition.key,
            seconds=seconds,
        )

    def _report(self, definition: BuildDefinition, line: str) -> None:
        self._progress(f"{definition.identity}: {line}")


def boot_failure(verdict: Verdict, seen: Boot) -> Broken | None:
    """The failure of a boot check; None if it passed.

    A machine that exceeded the time-out, or ended without output, may have lacked resources. That is a transient
    failure.
    """
    broken = _first_failed((verdict,))
    if broken is None or not seen.undecided:
        return broken
    failure = msgspec.structs.replace(broken.failure, kind=FailureClass.TRANSIENT)
    return msgspec.structs.replace(broken, failure=failure)


def _first_failed(verdicts: tuple[Verdict, ...]) -> Broken | None:
    for verdict in verdicts:
        if verdict.passed is False:
            kind = _CLASSES.get(verdict.check, FailureClass.COMPILE)
            symbol = verdict.symbols[0] if verdict.symbols else ""
            failure = BuildFailure(kind=kind, first_error=verdict.reason.partition("\n")[0], symbol=symbol)
            return Broken(failure=failure, log=verdict.reason)
    return None
