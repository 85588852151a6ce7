"""apt with a state of its own: what it downloads and believes is decided here, and nothing of the machine is changed.

The machine's settings of proxies, certificates and passwords stay; its sources, preferences, trusted keys, exceptions
from checking and hooks (images of containers delete packages in one) do not.
"""

import re
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.archives import Archives
from upgrader.process.places import write_whole

ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
_UNQUOTABLE = re.compile(r'["\\\s;#\[\]]')

# Without a user to change to, apt needs no access for that user to the folder, which may lie in root's home.
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


def prepare(folder: Path, archives: Archives, arch: str) -> Path:
    """Make apt's folders below `folder`, and the file of settings that it is to be started with.

    Raises:
        ConfigurationError: apt cannot be given one of the paths.
    """
    for place in (folder, archives.keyring):
        if _UNQUOTABLE.search(str(place)):
            raise ConfigurationError(f"apt cannot be given the path {str(place)!r}", resolution="Use a plainer one.")
    for below in ("state/lists/partial", "cache/archives/partial", "sources"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    settings = folder / "apt.conf"
    text = _SETTINGS.format(folder=folder, arch=arch, dated="false" if archives.frozen else "true")
    write_whole(settings, text.encode())
    return settings
