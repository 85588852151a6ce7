"""How long an unload of a driver is waited for."""

from msgspec import Struct


class UnloadPatience(Struct, frozen=True, kw_only=True):
    """Limits of an unload, in seconds.

    `users`: for the processes that use a device. `removal`: for the removal of all modules, which the kernel does not
    cancel: a short limit only hides that it continues. `origin`: where `removal` is set, for messages.
    """

    users: float
    removal: float
    origin: str = "driverUnloadSeconds of the stack"
