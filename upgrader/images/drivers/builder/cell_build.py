"""One cell from its definition to an image on the shelf: compiled, signed, checked, assembled, booted, and then kept.

Nothing is seen of an image before all of this has passed. A build that was killed leaves a work folder, which the next
one of the same key removes.
"""

import shutil
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import CheckName, Failure, FailureClass, Verdict
from upgrader.images import boot
from upgrader.images.boot.values import Boot
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.assembly import assemble, lay_files, take_modules
from upgrader.images.drivers.builder.budget import Budget
from upgrader.images.drivers.builder.compiling import Broken, Compiler
from upgrader.images.drivers.builder.image_store import Record, Remembered, Shelf
from upgrader.images.drivers.builder.sandbox import check_sandbox
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.layout import Layout
from upgrader.images.modules.signing import SigningKey, sign
from upgrader.images.modules.verify import verify_modules
from upgrader.process import ProgramFailedError
from upgrader.process.places import Progress, locked, write_whole

_BOOT_MIB = 1024
_CLASSES = {
    CheckName.CRC: FailureClass.CRC,
    CheckName.VERMAGIC: FailureClass.VERMAGIC,
    CheckName.SIGNATURE: FailureClass.SIGNATURE,
    CheckName.BOOT: FailureClass.BOOT,
}
"""Other checks fail when make said that all is well and it is not: a failure to compile."""


class Places(Struct, frozen=True, kw_only=True):
    """Folders: `cache` for what can be made again, `logs` for the ends of failed builds' logs."""

    cache: Path
    logs: Path


class Workshop:
    """Builds cells; several at once where several threads call it.

    Args:
        signer: signs the modules; its public half is named in the definitions.
    """

    def __init__(
        self,
        *,
        places: Places,
        packages: PackageStore,
        shelf: Shelf,
        budget: Budget,
        progress: Progress,
        signer: SigningKey | None = None,
    ) -> None:
        self._places = places
        self._packages = packages
        self._shelf = shelf
        self._remembered = Remembered(shelf.folder, progress)
        self._progress = progress
        self._signer = signer
        self._budget = budget
        self._trees = Trees(places.cache / "trees", packages, progress)
        self._compiler = Compiler(self._trees, packages, budget)

    def check(self) -> None:
        """Whether anything can be compiled here; asked once, before a round.

        Where no toolchain was unpacked yet there is nothing to enter, and each cell finds out by itself.

        Raises:
            SandboxError: nothing can.
        """
        for root in sorted((self._places.cache / "trees").glob("toolchain-*"))[:1]:
            check_sandbox(root, self._budget.tokens)

    def build(self, definition: Definition, recipe: RecipeFolder) -> BuildResult:
        """The image of a definition: the one that is there, or a new one, or why there is none.

        Raises:
            ConfigurationError: recipe, source, key or machine cannot be used as they are; it is not remembered.
            OSError: what became of it cannot be written down.
        """
        key = definition.key
        work = self._places.cache / "work" / key
        with locked(work.with_name(f".{key}.lock"), lambda: self._say(definition, "waiting for another build of it")):
            known = self.known(definition)
            if known is not None:
                return known
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            try:
                result = self._new(definition, recipe, work)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            self._remembered.keep(result)
        return result

    def known(self, definition: Definition) -> BuildResult | None:
        """What became of this very definition before; None where it is to be built."""
        return self._shelf.result(definition.key) or self._remembered.find(definition.key)

    def _new(self, definition: Definition, recipe: RecipeFolder, work: Path) -> BuildResult:
        started = time.monotonic()
        try:
            made = self._make(definition, recipe, work)
        except ArchiveError as error:
            # The signed index has named it: one mirror, or a proxy, without it says nothing about driver and kernel.
            made = Broken(failure=Failure(kind=FailureClass.TRANSIENT, first_error=error.brief), log=str(error))
        except ProgramFailedError as error:
            made = Broken(failure=Failure(kind=FailureClass.TRANSIENT, first_error=error.brief), log=str(error))
        except OSError as error:
            made = Broken(failure=Failure(kind=FailureClass.TRANSIENT, first_error=str(error)))
        seconds = time.monotonic() - started
        if isinstance(made, Broken):
            return self._red(definition, made, seconds)
        layout, verdicts = made
        record = Record(
            identity=definition.identity,
            build_key=definition.key,
            digest=layout.image.digest,
            seconds=seconds,
            verdicts=verdicts,
        )
        self._shelf.keep(layout, record)
        self._say(definition, f"built in {seconds:.0f} s, {layout.size / 1e6:.1f} MB compressed")
        return BuildResult(
            identity=definition.identity,
            state=CellState.GREEN,
            digest=record.digest,
            build_key=record.build_key,
            seconds=seconds,
            checks=verdicts,
        )

    def _make(
        self, definition: Definition, recipe: RecipeFolder, work: Path
    ) -> tuple[Layout, tuple[Verdict, ...]] | Broken:
        self._say(definition, f"compiling {' '.join(definition.modules)}")
        compiled = self._compiler.compile(definition, recipe, work)
        if isinstance(compiled, Broken):
            return compiled
        for module in compiled.modules:
            if self._signer is not None:
                sign(module, self._signer)
        files = work / "files"
        lay_files(definition, self._packages, files, work / "packages")
        verdicts = self._verified(definition, compiled.modules, compiled.headers, files)
        if (broken := _first_failed(verdicts)) is not None:
            return broken
        self._say(definition, "checked; assembling the image")
        layout = assemble(
            definition,
            recipe,
            modules=compiled.modules,
            files=files,
            verdicts=verdicts,
            base=compiled.base,
            layout=work / "layout",
        )
        booted, seen = self.boot(definition, layout, work / "shipped")
        broken = refused_boot(booted, seen)
        return broken if broken is not None else (layout, (*verdicts, booted))

    def _verified(
        self, definition: Definition, modules: tuple[Path, ...], headers: Path, files: Path
    ) -> tuple[Verdict, ...]:
        return verify_modules(
            modules,
            headers=headers,
            driver=definition.identity.driver,
            expected=definition.modules,
            tree=files if files.is_dir() else None,
            certificate=self._signer.certificate if self._signer else None,
        )

    def boot(self, definition: Definition, layout: Layout, work: Path) -> tuple[Verdict, Boot]:
        """Boot the very kernel and give it the modules that are in the image."""
        kernel = definition.kernel
        self._say(definition, "booting its kernel")
        tree = self._trees.tree(f"kernel-{kernel.release}", kernel.image)
        modules = take_modules(layout, work)
        with self._budget.share(_BOOT_MIB):  # emulation takes a whole core
            return boot.boot_modules(boot.find_kernel(tree, kernel.release), modules)

    def _red(self, definition: Definition, broken: Broken, seconds: float) -> BuildResult:
        failure = broken.failure
        write_whole(self._places.logs / f"{definition.key}.log", f"{broken.log}\n".encode())
        self._say(definition, f"{failure.kind}: {failure.first_error}")
        return BuildResult(
            identity=definition.identity,
            state=CellState.RED,
            failure=failure,
            build_key=definition.key,
            seconds=seconds,
        )

    def _say(self, definition: Definition, line: str) -> None:
        self._progress(f"{definition.identity}: {line}")


def refused_boot(verdict: Verdict, seen: Boot) -> Broken | None:
    """Why an image is not taken by its boot check; None where it passed.

    A machine that was only overdue, or ended without a word, may have been starved: no answer is no refusal.
    """
    broken = _first_failed((verdict,))
    if broken is None or not seen.undecided:
        return broken
    failure = msgspec.structs.replace(broken.failure, kind=FailureClass.TRANSIENT)
    return msgspec.structs.replace(broken, failure=failure)


def _first_failed(verdicts: tuple[Verdict, ...]) -> Broken | None:
    for one in verdicts:
        if one.passed is False:
            kind = _CLASSES.get(one.check, FailureClass.COMPILE)
            symbol = one.symbols[0] if one.symbols else ""
            failure = Failure(kind=kind, first_error=one.reason.partition("\n")[0], symbol=symbol)
            return Broken(failure=failure, log=one.reason)
    return None
