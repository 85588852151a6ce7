"""Names that are hashes of facts: the revision of a stack, the keys of a driver image and of a device plugin.

Nodes carry them as labels, so that their bytes never change: the hash is over a JSON array of [name, value] pairs in
the order below, without empty values, so that a fact that is added later and is not used changes no existing name.
"""

import hashlib
import json
import re
from functools import lru_cache
from typing import Any

import msgspec

from upgrader.core.model.fleet import Target

REVISION_DIGITS = 10
KEY_DIGITS = 16
_REVISION_FACTS = (
    "driver_vendor",
    "driver_version",
    "plugin_image",
    "resource_name",
    "kubelet_version",
    "kubelet_artifact",
    "kubelet_binary",
    "kernel",
    "vendor",
    "driver_recipe",
    "driver_flavour",
    "runtime_image",
    "time_slices",
    "mig_strategy",
    "kubelet_settings",
    "workload_image",
    "workload_runtime",
    "mps_replicas",
    "mps_runtime",
    "module_parameters",
    "all_reduce",
    "diagnostics",
)
_PINNED = re.compile(r"(?:^|@)(sha256:[0-9a-f]{64})$")


def revision_of(target: Target) -> str:
    """10 hex digits over the facts that a stack requires on its nodes, without its name and its rendered templates."""
    facts = [(name, msgspec.to_builtins(getattr(target, name))) for name in _REVISION_FACTS]
    return _hash_facts(facts, REVISION_DIGITS)


def with_revision(target: Target) -> Target:
    """The same target, named by its facts."""
    return msgspec.structs.replace(target, revision=revision_of(target))


def image_key(*, vendor: str, version: str, kernel: str, digest: str) -> str:
    """16 hex digits over a driver image's identity and content.

    `digest` is `name@sha256:...` or `sha256:...`; the name does not count, since the same bytes in another registry are
    the same image.

    Raises:
        ValueError: not pinned by a digest.
    """
    return _hash_facts(
        [("vendor", vendor), ("version", version), ("kernel", kernel), ("digest", content_of(digest))], KEY_DIGITS
    )


@lru_cache(maxsize=64)  # drift computes it for every node of a pool
def plugin_key(*, digest: str, resource_name: str, more: tuple[tuple[str, str], ...] = ()) -> str:
    """16 hex digits over a device plugin's content and the resource it offers; `digest` as for `image_key`.

    `more`: PluginSettings.facts; empty ones are left out.

    Raises:
        ValueError: not pinned by a digest.
    """
    return _hash_facts([("digest", content_of(digest)), ("resource_name", resource_name), *more], KEY_DIGITS)


def runtime_key_of(target: Target) -> str:
    """The key of the runtime hook of a target; empty if the stack does not manage it.

    Raises:
        ValueError: its image is not pinned by a digest.
    """
    if not target.runtime_image:
        return ""
    return _runtime_key(target.runtime_digest, target.operands, target.driver_vendor)


@lru_cache(maxsize=64)  # as plugin_key
def _runtime_key(digest: str, vendor: str, driver_vendor: str) -> str:
    facts = [("digest", content_of(digest)), ("vendor", vendor), ("driver_vendor", driver_vendor)]
    return _hash_facts(facts, KEY_DIGITS)


def plugin_key_of(target: Target) -> str:
    """The key of the device plugin of a target; empty if the stack does not manage it.

    Raises:
        ValueError: its image is not pinned by a digest.
    """
    if not target.plugin_image:
        return ""
    return plugin_key(digest=target.plugin_digest, resource_name=target.resource_name, more=target.plugin.facts)


def content_of(digest: str) -> str:
    """The `sha256:...` of a pinned image reference.

    Raises:
        ValueError: not pinned by a digest.
    """
    match = _PINNED.search(digest)
    if match is None:
        raise ValueError(f"not pinned by a digest: {digest!r}")
    return match[1]


def _hash_facts(facts: list[tuple[str, Any]], digits: int) -> str:
    canonical = json.dumps([fact for fact in facts if fact[1]], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:digits]
