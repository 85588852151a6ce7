"""Names in a registry: of the image of an identity, of the packages that it is built from, and of short references."""

from upgrader.core.driver_build.driver_builds import TAG_LIMIT, Identity, escape_opening, escape_tag, hash_facts

PACKAGES = "packages"


def image_name(repository: str, identity: Identity) -> str:
    """`repository/RECIPE:TAG`; `repository` is `registry/path`."""
    return f"{repository}/{identity.recipe}:{identity.tag}"


def packages_name(repository: str, identity: Identity) -> str:
    """`repository/packages:TAG`: the archive's packages for this identity, as `upgrader images pack` pushes them."""
    tag = escape_opening(f"{escape_tag(identity.recipe)}__{identity.tag}")
    return f"{repository}/{PACKAGES}:{tag if len(tag) <= TAG_LIMIT else hash_facts([tag], 64)}"


def with_registry(reference: str, registry: str) -> str:
    """The reference, in `registry` if it does not name a registry itself.

    A reference begins with a registry if its first part has a dot or a port, or is localhost
    (https://github.com/distribution/reference).
    """
    first, slash, _ = reference.partition("/")
    named = bool(slash) and (first == "localhost" or "." in first or ":" in first)
    return reference if named or not registry else f"{registry}/{reference}"
