"""Lists as the API server gives them: whole, or page by page."""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from upgrader.api.kubernetes import Wire

T = TypeVar("T")


class ListMeta(Wire, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Wire, Generic[T], frozen=True, kw_only=True):
    """A list, or one page of it."""

    items: list[T] | None
    """`null` is what the API server writes for no items of some kinds (metadata only, for instance)."""
    metadata: ListMeta = ListMeta()


class Listing(Struct, Generic[T], frozen=True):
    """All objects of a kind, as of one version."""

    items: list[T]
    resource_version: str
