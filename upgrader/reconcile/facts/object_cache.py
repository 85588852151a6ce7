"""Values derived from one object alone, cached while that object is unchanged.

Every step reads every object, and most are unchanged since the previous step, so their values are not derived again.
This is for speed only. The key is uid and resourceVersion, which the API server changes with each write, so a cached
value always belongs to the state that was read.
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
    """Values by object; those of objects that a round did not contain are dropped with the next round."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept[T]] = {}
        self._before: dict[str, _Kept[T]] = {}

    def begin(self) -> None:
        """Begin a round, in which each existing object is derived."""
        self._before, self._kept = self._kept, {}

    def derive(self, meta: ObjectMeta, settings: object, make: Callable[[], T]) -> T:
        """The value of an object; cached if neither the object nor the settings have changed.

        Args:
            meta: metadata of the object; without uid or resourceVersion the value is not cached.
            settings: all other inputs of the value, compared by value.
            make: derives it.
        """
        kept = self._kept.get(meta.uid) or self._before.get(meta.uid)
        if kept is None or kept.version != meta.resource_version or kept.settings != settings:
            kept = _Kept(meta.resource_version, settings, make())
        if meta.uid and meta.resource_version:
            self._kept[meta.uid] = kept
        return kept.value
