"""How many examples a law is tried on: as many as say something between two edits, at least 1,000 in `make nightly`."""

from hypothesis import settings


def examples(count: int) -> settings:
    """So many, or as many as the profile asks for where that is more."""
    profile = settings.get_current_profile_name()
    return settings(max_examples=max(count, settings().max_examples if profile == "nightly" else 0))
