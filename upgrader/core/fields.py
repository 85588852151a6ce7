"""Types of the fields of custom resources: described texts, versions, times, and the base of all wire types.

They are in core since some structs, such as windows and acknowledgements, are both a part of a custom resource and an
input of a decision.
"""

from typing import Annotated

from msgspec import Meta, Struct


def field_doc(text: str) -> Meta:
    """Metadata of a field that has only a description."""
    return Meta(description=text)


def keyed_by(field: str) -> dict[str, object]:
    """Schema of a list whose entries are identified by `field`: applies of several writers merge, duplicates are
    rejected.
    """
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}


Text = Annotated[str, Meta(min_length=1, max_length=253)]
ImageReference = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
Word = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
VersionText = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[0-9A-Za-z][0-9A-Za-z.+~_-]*$")]
KernelRelease = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z][0-9A-Za-z.+~_-]*$")]
CommandWords = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=1024)]],
    Meta(min_length=1, max_length=32, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
]
UnitName = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^[0-9A-Za-z][0-9A-Za-z:_.@-]*\.(service|socket|timer)$")
]
"""A systemd unit. It is a word of a shell command on nodes, so systemd's escapes (backslashes) are not accepted."""
UnitNames = Annotated[list[UnitName], Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "set"})]
KubeletVersion = Annotated[str, Meta(pattern=r"^1\.[0-9]+\.[0-9]+$")]
TimeOfDay = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
TimeZone = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$")]
_METHOD = "(file|exec|http|signal|api|none)"
CheckpointMethods = Annotated[str, Meta(max_length=63, pattern=f"^{_METHOD}(, ?{_METHOD})*$")]
LabelKey = Annotated[
    str, Meta(max_length=317, pattern=r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
]
Seconds = Annotated[int, Meta(ge=1, le=604800)]
# The years that untrusted.py reads. Only the schema enforces them, so that objects stored before it can be listed.
Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time", "pattern": "^(19[7-9][0-9]|[2-8][0-9]{3})-"})]


class Resource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all wire types: frozen, camelCase, unset fields omitted."""
