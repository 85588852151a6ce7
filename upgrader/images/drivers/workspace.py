"""Where this machine keeps what driver images are made of, and the parts of the chain over it. Opened from settings."""

import asyncio
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.driver_build.driver_matrix import Cell, Matrix
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.archives import archives
from upgrader.images.debian.discovery import News
from upgrader.images.debian.errors import ArchiveError, UnreachableArchiveError
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.budget import Budget, memory_available_mib
from upgrader.images.drivers.builder.catalog import Catalog, Cells, load, look
from upgrader.images.drivers.builder.cell_build import Places, Workshop
from upgrader.images.drivers.builder.image_store import Remembered, Shelf
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.publish.build_matrix import Definitions, Publishing, Round, red, with_alternatives
from upgrader.images.drivers.publish.bundle_registry import Judge, Signer, pull_bundle, push_bundle
from upgrader.images.drivers.publish.bundles import Bundled, bundle, open_bundle
from upgrader.images.drivers.publish.inspection import KernelTrees
from upgrader.images.drivers.recipe.definition import Definition, identity_of
from upgrader.images.drivers.recipe.recipes import RecipeFolder, read_matrix, read_recipes, recipes_root
from upgrader.images.modules.signing import SigningKey, fingerprint, open_key
from upgrader.process.places import Progress, cache_root


class Settings(Struct, frozen=True, kw_only=True):
    """What a person may say of a build.

    Args:
        store: folder of the OCI layout with the images; beside the other caches where it is None.
        cache: packages, unpacked trees, apt's state.
        recipes: driver-images/ of the checkout where it is None.
        module_key: private key and certificate that modules are signed with, PEM.
        module_certificate: of whoever signs them elsewhere, for definitions that are only packed here.
        cores: that all builds together use; 0 for all.
        memory_mib: that all builds together use; 0 for four fifths of what is free.
    """

    store: Path | None = None
    cache: Path | None = None
    recipes: Path | None = None
    module_key: tuple[Path, Path] | None = None
    module_certificate: Path | None = None
    cores: int = 0
    memory_mib: int = 0


class Site:
    """The parts of the chain, each made when it is first asked for."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._cache = settings.cache or cache_root()
        self._state = self._cache / "driver-builds"
        self.root = settings.recipes or recipes_root()
        self.shelf = Shelf(settings.store or self._cache / "driver-images", progress)
        self.remembered = Remembered(self.shelf.folder, progress)

    @cached_property
    def recipes(self) -> Mapping[str, RecipeFolder]:
        """All recipes, by name."""
        return read_recipes(self.root)

    @cached_property
    def matrix(self) -> Matrix:
        """Which images are wanted."""
        return read_matrix(self.root)

    @cached_property
    def packages(self) -> PackageStore:
        """Packages that were ever used; the archive is asked for the others."""
        return PackageStore(self._cache / "packages", _Archive(self._cache / "apt/fetching"))

    @cached_property
    def signer(self) -> SigningKey | None:
        """Who signs modules."""
        pair = self._settings.module_key
        return open_key(*pair) if pair else None

    def check_key(self) -> None:
        """Whether modules can be signed, where they are to be; asked before anything is fetched for them.

        Raises:
            ConfigurationError: the key or its certificate cannot be used.
        """
        if self.signed_by:
            self._progress(f"modules are signed by the key of the certificate {self.signed_by}")

    @cached_property
    def signed_by(self) -> str:
        """Fingerprint of the certificate that modules are, or will be, signed with; empty where there is none."""
        certificate = self.signer.certificate if self.signer else self._settings.module_certificate
        return fingerprint(certificate) if certificate else ""

    def look(self) -> tuple[Catalog, News]:
        """Ask the archives anew."""
        with self.packages.in_use(self._progress):
            return look(
                self.matrix,
                self.recipes,
                source=archives(),
                packages=self.packages,
                folder=self._state,
                progress=self._progress,
            )

    def catalog(self) -> Catalog:
        """What the archives had when they were last asked for all that the recipes name; else they are asked."""
        last = self.last_catalog()
        if last is not None and last.answers(self.recipes):
            return last
        try:
            return self.look()[0]
        except UnreachableArchiveError as error:
            if last is None:
                raise
            self._progress(f"{error.brief}; going by the last answer, which lacks packages that recipes name now")
            return last

    def last_catalog(self) -> Catalog | None:
        """As `catalog`, and nobody is asked; None where nobody ever was."""
        return load(self._state)

    def kernels(self) -> KernelTrees:
        """Kernels of which the packages are here; nobody is asked for others."""
        packages = PackageStore(self._cache / "packages")
        return KernelTrees(self.last_catalog(), Trees(self._state / "trees", packages, self._progress))

    def cells(self, catalog: Catalog) -> Cells:
        """The cells over a catalog."""
        return Cells(catalog, self.matrix, self.recipes, self.root, signer=self.signed_by)

    def identity(self, catalog: Catalog, *, driver: str, kernel: str, os: str = "", recipe: str = "") -> Identity:
        """The image that a person means.

        Raises:
            MissingPackageError: no archive has the kernel.
            ConfigurationError: no recipe has the driver, or several have it.
        """
        found = catalog.kernel(kernel, os)
        having = [one for one in self.recipes.values() if driver in catalog.drivers(one, found.os)]
        chosen = [one for one in having if recipe in {"", one.name}]
        if len(chosen) == 1:
            return identity_of(chosen[0].name, chosen[0].recipe, driver, found)
        if len(chosen) > 1:
            names = ", ".join(one.name for one in chosen)
            raise ConfigurationError(f"several recipes have {driver}: {names}", resolution="Name one with --recipe.")
        if recipe and recipe not in self.recipes:
            raise ConfigurationError(f"there is no recipe {recipe}", resolution=f"One of: {', '.join(self.recipes)}.")
        versions = {one.name: catalog.drivers(one, found.os) for one in self.recipes.values()}
        offered = [f"{name}: {', '.join(known) or 'none'}" for name, known in versions.items()]
        raise ConfigurationError(
            f"no {recipe or 'recipe'} has a driver {driver} for {found.os}", details="\n".join(offered)
        )

    def pack(
        self, definition: Definition, image: str, *, insecure: Collection[str], signer: Signer | None = None
    ) -> str:
        """Push a definition with all its packages, for builders without an archive; `name@sha256:...`.

        Raises:
            ArchiveError: a package cannot be had.
            RegistryError: the registry does not take it.
            ProcessError: cosign fails.
        """
        with self._packing() as place:
            layout = bundle(definition, self.packages, place / "layout")
            self._progress(f"{definition.identity}: pushing {layout.size / 1e6:.1f} MB of packages")
            return asyncio.run(push_bundle(layout, definition, image, signer=signer, insecure=insecure))

    def bundled(self, image: str, *, insecure: Collection[str], judge: Judge | None = None) -> Bundled:
        """What `pack` has pushed, if it is signed by whom `judge` wants; its packages are in the store then.

        Raises:
            UnverifiedError: it is not.
            RegistryError: it does not come, whole.
            ProcessError: cosign does not answer.
            ConfigurationError: it is not there, or no such thing.
            ArchiveError: a package is not what its digest says, or the disk is full.
        """
        with self._packing() as place:
            folder = place / "layout"
            pulling = pull_bundle(image, folder, judge=judge, insecure=insecure, progress=self._progress)
            found = open_bundle(asyncio.run(pulling), self.packages)
            return Bundled(found, self.recipes, self.root, signer=self.signed_by)

    @contextmanager
    def _packing(self) -> Iterator[Path]:
        """A folder for a layout of packages, which nobody sweeps meanwhile."""
        self._state.mkdir(parents=True, exist_ok=True)
        with (
            self.packages.in_use(self._progress),
            tempfile.TemporaryDirectory(prefix="upgrader-packages-", dir=self._state) as place,
        ):
            yield Path(place)

    @contextmanager
    def round(self, cells: Definitions, *, publisher: Publishing | None = None, parallel: int = 0) -> Iterator[Round]:
        """Builds cells, for as long as the context lasts. What would be wrong with every cell is asked first.

        Raises:
            ConfigurationError: a recipe or the key cannot be read, or nothing can be compiled on this machine.
        """
        cores = self._settings.cores or os.cpu_count() or 1
        memory = self._settings.memory_mib or memory_available_mib()
        with (
            self.packages.in_use(self._progress),
            Budget(self._state / f"budget-{os.getpid()}", cores=cores, memory_mib=memory) as budget,
        ):
            workshop = Workshop(
                places=Places(cache=self._state, logs=self.shelf.folder / "upgrader/logs"),
                packages=self.packages,
                shelf=self.shelf,
                budget=budget,
                progress=self._progress,
                signer=self.signer,
            )
            workshop.check()
            yield Round(
                cells,
                workshop,
                self.shelf,
                progress=self._progress,
                publisher=publisher,
                parallel=parallel or cores,
            )

    def state(self, cells: Cells, wanted: Sequence[Cell]) -> tuple[BuildResult, ...]:
        """What is known of cells without building any; one that cannot be defined is red and stops no other.

        Raises:
            ConfigurationError: the store cannot be read.
            ProcessError: buildah, whose version is in every build key, is not there.
        """
        kept = self.shelf.records()
        return with_alternatives((self._known(cells, cell) for cell in wanted), kept)

    def _known(self, cells: Cells, cell: Cell) -> BuildResult:
        try:
            key = cells.definition(cell).key
        except (ArchiveError, ConfigurationError) as error:
            return red(cell, error, self._progress)
        known = self.shelf.result(key) or self.remembered.find(key)
        return known or BuildResult(identity=cell.identity, state=CellState.MISSING, build_key=key)


class _Archive:
    """The archive of this machine, which is not looked for before a package is missing: that takes apt a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        self._fetcher.download(archive, path, sha256, target)

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self._folder, archives())
