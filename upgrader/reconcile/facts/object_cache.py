"""What follows from one object alone, kept while that object is the same.

Every look at the cluster reads every object, and most are as they were a look before: what follows from those is not
derived again. It serves speed only. An object is known by its uid and resourceVersion, which the API server changes
with each write, so what is kept can never be of another state than the one that was read.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from upgrader.api.kubernetes import ObjectMeta

T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    version: str
    settings: object
    value: T


class ObjectCache(Generic[T]):
    """Values by the object that they follow from; those of objects that a round did not see go with the next one."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept[T]] = {}
        self._before: dict[str, _Kept[T]] = {}

    def begin(self) -> None:
        """Begin a round: each object that is still there is derived in it."""
        self._before, self._kept = self._kept, {}

    def derive(self, meta: ObjectMeta, settings: object, make: Callable[[], T]) -> T:
        """The value of an object, as it was made before where neither the object nor the settings have changed.

        Args:
            meta: of the object; one without uid or resourceVersion was not read from an API server, and is not kept.
            settings: all else that the value follows from, compared by value.
            make: derives it.
        """
        kept = self._kept.get(meta.uid) or self._before.get(meta.uid)
        if kept is None or kept.version != meta.resource_version or kept.settings != settings:
            kept = _Kept(meta.resource_version, settings, make())
        if meta.uid and meta.resource_version:
            self._kept[meta.uid] = kept
        return kept.value
