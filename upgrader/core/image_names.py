"""Names in a registry: of an image for an identity, and of the packages that it is built from."""

from upgrader.core.driver_builds import TAG_LIMIT, Identity, digits, escaped, opening

PACKAGES = "packages"


def image_name(repository: str, identity: Identity) -> str:
    """`repository/RECIPE:TAG`; `repository` is `registry/path`."""
    return f"{repository}/{identity.recipe}:{identity.tag}"


def packages_name(repository: str, identity: Identity) -> str:
    """`repository/packages:TAG`: the archive's packages for this identity, as `upgrader images pack` pushes them."""
    tag = opening(f"{escaped(identity.recipe)}__{identity.tag}")
    return f"{repository}/{PACKAGES}:{tag if len(tag) <= TAG_LIMIT else digits([tag], 64)}"
