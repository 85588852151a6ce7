"""Lists of the API server, complete or in pages."""

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
    """`null` for an empty list of some kinds (for example of metadata only)."""
    metadata: ListMeta = ListMeta()


class Listing(Struct, Generic[T], frozen=True):
    """All objects of a kind at one resourceVersion."""

    items: list[T]
    resource_version: str
