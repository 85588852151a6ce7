"""Fakes and builders that several folders share; those that moved into the package are found under their old names."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "objects": "apiserver.objects",
    "store": "apiserver.store",
    "cluster": "apiserver.cluster",
    "world": "cluster.ports",
    **{
        name: f"cluster.{name}"
        for name in ("controllers", "fleet", "placing", "readings", "responder", "rig", "speaking", "trainers")
    },
}


class MovedModules(MetaPathFinder, Loader):
    """Gives the module itself, so that there is one of each class."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(f"upgrader.simulate.{MOVED[spec.name.rpartition('.')[2]]}")

    def exec_module(self, module: ModuleType) -> None:
        """It is loaded already."""


sys.meta_path.insert(0, MovedModules())
