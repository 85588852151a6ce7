"""The caches of this machine for driver images, and the components of the build, created from settings."""

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
from upgrader.images.debian.archives import configured_archives
from upgrader.images.debian.discovery import News
from upgrader.images.debian.errors import ArchiveError, UnreachableArchiveError
from upgrader.images.debian.fetching import Fetcher
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.builder.budget import BuildBudget, memory_available_mib
from upgrader.images.drivers.builder.catalog import Catalog, Cells, load_catalog, update_catalog
from upgrader.images.drivers.builder.cell_build import BuildFolders, Workshop
from upgrader.images.drivers.builder.image_store import FailureStore, Shelf
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.publish.build_matrix import Definitions, Publishing, Round, red_result, with_alternatives
from upgrader.images.drivers.publish.bundle_registry import BundleTrust, Signer, pull_bundle, push_bundle
from upgrader.images.drivers.publish.bundles import BundledCell, open_bundle, pack_bundle
from upgrader.images.drivers.publish.inspection import KernelTrees
from upgrader.images.drivers.recipe.definition import BuildDefinition, identity_of
from upgrader.images.drivers.recipe.recipes import RecipeFolder, read_matrix, read_recipes, recipes_root
from upgrader.images.modules.signing import ModuleSigningKey, certificate_fingerprint, open_key
from upgrader.process.places import Progress, cache_root


class WorkspaceSettings(Struct, frozen=True, kw_only=True):
    """The user's settings of a build.

    Args:
        store: folder of the OCI layout with the images; None for the default in the cache.
        cache: packages, unpacked trees, apt's state.
        recipes: driver-images/; None for that of the checkout.
        module_key: private key and certificate that sign modules, PEM.
        module_certificate: the certificate of another machine that signs modules, for definitions that are packed here.
        cores: the cores of all builds together; 0 for all.
        memory_mib: the memory of all builds together; 0 for four fifths of the free memory.
    """

    store: Path | None = None
    cache: Path | None = None
    recipes: Path | None = None
    module_key: tuple[Path, Path] | None = None
    module_certificate: Path | None = None
    cores: int = 0
    memory_mib: int = 0


class Site:
    """The components of the build, each created on first use."""

    def __init__(self, settings: WorkspaceSettings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._cache = settings.cache or cache_root()
        self._state = self._cache / "driver-builds"
        self.root = settings.recipes or recipes_root()
        self.shelf = Shelf(settings.store or self._cache / "driver-images", progress)
        self.remembered = FailureStore(self.shelf.folder, progress)

    @cached_property
    def recipes(self) -> Mapping[str, RecipeFolder]:
        """All recipes, by name."""
        return read_recipes(self.root)

    @cached_property
    def matrix(self) -> Matrix:
        """The matrix of wanted images."""
        return read_matrix(self.root)

    @cached_property
    def packages(self) -> PackageStore:
        """The store of packages, which downloads missing packages from the archive."""
        return PackageStore(self._cache / "packages", _Archive(self._cache / "apt/fetching"))

    @cached_property
    def signer(self) -> ModuleSigningKey | None:
        """The key that signs modules."""
        pair = self._settings.module_key
        return open_key(*pair) if pair else None

    def check_key(self) -> None:
        """Check whether modules can be signed, before anything is fetched.

        Raises:
            ConfigurationError: the key or its certificate is invalid.
        """
        if self.signed_by:
            self._progress(f"modules are signed with the key of the certificate {self.signed_by}")

    @cached_property
    def signed_by(self) -> str:
        """Fingerprint of the certificate that signs modules, now or on another machine; empty if there is none."""
        certificate = self.signer.certificate if self.signer else self._settings.module_certificate
        return certificate_fingerprint(certificate) if certificate else ""

    def update_catalog(self) -> tuple[Catalog, News]:
        """Read the archives again."""
        with self.packages.in_use(self._progress):
            return update_catalog(
                self.matrix,
                self.recipes,
                source=configured_archives(),
                packages=self.packages,
                folder=self._state,
                progress=self._progress,
            )

    def current_catalog(self) -> Catalog:
        """The saved catalog if it covers all recipes; otherwise the archives are read."""
        last = self.last_catalog()
        if last is not None and last.covers_recipes(self.recipes):
            return last
        try:
            return self.update_catalog()[0]
        except UnreachableArchiveError as error:
            if last is None:
                raise
            self._progress(f"{error.brief}; using the last catalog, which lacks packages of new recipes")
            return last

    def last_catalog(self) -> Catalog | None:
        """The saved catalog, without a request; None if there is none."""
        return load_catalog(self._state)

    def kernel_trees(self) -> KernelTrees:
        """Kernels whose packages are in the store. No other kernel is fetched."""
        packages = PackageStore(self._cache / "packages")
        return KernelTrees(self.last_catalog(), Trees(self._state / "trees", packages, self._progress))

    def matrix_cells(self, catalog: Catalog) -> Cells:
        """The cells of the matrix and a catalog."""
        return Cells(catalog, self.matrix, self.recipes, self.root, signer=self.signed_by)

    def find_identity(self, catalog: Catalog, *, driver: str, kernel: str, os: str = "", recipe: str = "") -> Identity:
        """The identity of the image that the user selects.

        Raises:
            MissingPackageError: no archive has the kernel.
            ConfigurationError: none or several recipes have the driver.
        """
        known_kernel = catalog.find_kernel(kernel, os)
        system, folders = known_kernel.os, self.recipes.values()
        having = [folder for folder in folders if driver in catalog.driver_versions(folder, system)]
        chosen = [folder for folder in having if recipe in {"", folder.name}]
        if len(chosen) == 1:
            return identity_of(chosen[0].name, chosen[0].recipe, driver, known_kernel)
        if len(chosen) > 1:
            names = ", ".join(folder.name for folder in chosen)
            raise ConfigurationError(f"several recipes have {driver}: {names}", resolution="Select one with --recipe.")
        if recipe and recipe not in self.recipes:
            raise ConfigurationError(
                f"the recipe {recipe} does not exist", resolution=f"One of: {', '.join(self.recipes)}."
            )
        versions = {folder.name: catalog.driver_versions(folder, known_kernel.os) for folder in self.recipes.values()}
        offered = [f"{name}: {', '.join(known) or 'none'}" for name, known in versions.items()]
        raise ConfigurationError(
            f"no {recipe or 'recipe'} has a driver {driver} for {known_kernel.os}", details="\n".join(offered)
        )

    def push_packages(
        self, definition: BuildDefinition, image: str, *, insecure: Collection[str], signer: Signer | None = None
    ) -> str:
        """Push a definition with all its packages, for builders without an archive; returns `name@sha256:...`.

        Raises:
            ArchiveError: a package is not available.
            RegistryError: the registry rejects it.
            ProcessError: cosign fails.
        """
        with self._packing_folder() as place:
            layout = pack_bundle(definition, self.packages, place / "layout")
            self._progress(f"{definition.identity}: pushing {layout.size / 1e6:.1f} MB of packages")
            return asyncio.run(push_bundle(layout, definition, image, signer=signer, insecure=insecure))

    def pull_packages(self, image: str, *, insecure: Collection[str], judge: BundleTrust | None = None) -> BundledCell:
        """The bundle that `push_packages` pushed, if the key of `judge` has signed it. Its packages are then in the
        store.

        Raises:
            UnverifiedError: the key has not signed the bundle.
            RegistryError: the registry does not send all of it.
            ProcessError: cosign does not answer.
            ConfigurationError: the bundle does not exist or is invalid.
            ArchiveError: a package differs from its digest, or the disk is full.
        """
        with self._packing_folder() as place:
            folder = place / "layout"
            pulling = pull_bundle(image, folder, judge=judge, insecure=insecure, progress=self._progress)
            definition = open_bundle(asyncio.run(pulling), self.packages)
            return BundledCell(definition, self.recipes, self.root, signer=self.signed_by)

    @contextmanager
    def _packing_folder(self) -> Iterator[Path]:
        """A folder for a layout of packages. No sweep runs meanwhile."""
        self._state.mkdir(parents=True, exist_ok=True)
        with (
            self.packages.in_use(self._progress),
            tempfile.TemporaryDirectory(prefix="upgrader-packages-", dir=self._state) as place,
        ):
            yield Path(place)

    @contextmanager
    def open_round(
        self, cells: Definitions, *, publisher: Publishing | None = None, parallel: int = 0
    ) -> Iterator[Round]:
        """A Round that builds cells during the context. Problems that concern every cell are checked first.

        Raises:
            ConfigurationError: a recipe or the key is invalid, or nothing can be compiled on this machine.
        """
        cores = self._settings.cores or os.cpu_count() or 1
        memory = self._settings.memory_mib or memory_available_mib()
        with (
            self.packages.in_use(self._progress),
            BuildBudget(self._state / f"budget-{os.getpid()}", cores=cores, memory_mib=memory) as budget,
        ):
            workshop = Workshop(
                places=BuildFolders(cache=self._state, logs=self.shelf.folder / "upgrader/logs"),
                packages=self.packages,
                shelf=self.shelf,
                budget=budget,
                progress=self._progress,
                signer=self.signer,
            )
            workshop.check_machine()
            yield Round(
                cells,
                workshop,
                self.shelf,
                progress=self._progress,
                publisher=publisher,
                parallel=parallel or cores,
            )

    def known_results(self, cells: Cells, wanted: Sequence[Cell]) -> tuple[BuildResult, ...]:
        """The results of cells without a build. A cell that cannot be defined is red and does not stop others.

        Raises:
            ConfigurationError: the store cannot be read.
            ProcessError: buildah, whose version is part of every build key, is missing.
        """
        kept = self.shelf.list_records()
        return with_alternatives((self._known_result(cells, cell) for cell in wanted), kept)

    def _known_result(self, cells: Cells, cell: Cell) -> BuildResult:
        try:
            key = cells.define_cell(cell).key
        except (ArchiveError, ConfigurationError) as error:
            return red_result(cell, error, self._progress)
        known = self.shelf.find_result(key) or self.remembered.find_failure(key)
        return known or BuildResult(identity=cell.identity, state=CellState.MISSING, build_key=key)


class _Archive:
    """The archive of this machine. It is determined when a package is missing, since that takes apt a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        self._fetcher.download(archive, path, sha256, target)

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self._folder, configured_archives())
