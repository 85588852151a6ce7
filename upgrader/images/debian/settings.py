"""apt with its own configuration and state, which decide what it downloads and trusts. The machine is not changed.

The machine's proxies, certificates and passwords apply; its sources, preferences, trusted keys, exceptions from
verification and hooks (those of container images delete packages) do not.
"""

import re
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.archives import Archives
from upgrader.process.places import write_atomically

ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
_PLAIN_PATH = "Use a path without quotes, spaces, brackets, backslashes, `;` and `#`."
_UNQUOTABLE = re.compile(r'["\\\s;#\[\]]')

# If apt does not change its user, no other user needs access to the folder, which may be in root's home.
_SETTINGS = """\
Dir::State "{folder}/state";
Dir::State::lists "{folder}/state/lists";
Dir::State::status "/dev/null";
Dir::Cache "{folder}/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{folder}/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "/dev/null";
APT::Sandbox::User "";
APT::Architecture "{arch}";
#clear APT::Architectures;
APT::Architectures "{arch}";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Check-Valid-Until "{dated}";
Acquire::Check-Date "true";
Acquire::PDiffs "false";
Acquire::GzipIndexes "true";
Acquire::IndexTargets::deb::Packages::KeepCompressedAs "xz";
Acquire::Languages "none";
pkgCacheFile::Generate "false";
"""


def write_settings(folder: Path, archives: Archives, arch: str) -> Path:
    """Create apt's folders below `folder`, and return the path of its configuration file.

    Raises:
        ConfigurationError: one of the paths has characters that apt's configuration does not allow.
    """
    for place in (folder, archives.keyring):
        if _UNQUOTABLE.search(str(place)):
            raise ConfigurationError(f"apt does not accept the path {str(place)!r}", resolution=_PLAIN_PATH)
    for below in ("state/lists/partial", "cache/archives/partial", "sources"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    settings = folder / "apt.conf"
    text = _SETTINGS.format(folder=folder, arch=arch, dated="false" if archives.frozen else "true")
    write_atomically(settings, text.encode())
    return settings
