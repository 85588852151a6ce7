"""Values that hold a secret do not show it: a traceback with variables or a log of a value would."""

import importlib
import pkgutil

import msgspec

import upgrader

HOLDS_SECRETS = {
    "upgrader.images.registry.transport._Token",
    "upgrader.images.registry.login.RegistryLogin",
    "upgrader.images.registry.login._Entry",
    "upgrader.images.trust.values.SigningKey",
    "upgrader.kube.connect.Access",
    "upgrader.node.kubelet.credentials.ApiAccess",
    "upgrader.node.kubelet.credentials._User",
    "upgrader.process.finished.Command",
}
SECRET = {"password", "token", "access_token", "bearer", "secrets", "client_key_data", "passphrase", "auth"}
NO_SECRET = {"upgrader_dev.devcluster.base.record.ClusterRecord"}
"""Its token marks processes and stands on their command lines."""


def structs() -> dict[str, type[msgspec.Struct]]:
    found = {}
    for info in pkgutil.walk_packages(upgrader.__path__, "upgrader."):
        if "_pb2" in info.name or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == info.name]
        found.update({f"{info.name}.{one.__name__}": one for one in own if issubclass(one, msgspec.Struct)})
    return found


def test_every_value_that_holds_a_secret_has_words_of_its_own():
    holding = {name: one for name, one in structs().items() if SECRET & set(one.__struct_fields__)}
    assert set(holding) - NO_SECRET == HOLDS_SECRETS
    assert [name for name, one in holding.items() if name not in NO_SECRET and "__repr__" not in vars(one)] == []
