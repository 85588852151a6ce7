"""A real Prometheus from the distribution's archive, run on a box: what it scraped is asked by promtool."""

import contextlib
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.support.programs import soon
from upgrader.process import run
from upgrader.process.places import cache_root
from upgrader_dev.devcluster.box.box_node import BoxNode

PACKAGE = "prometheus"
ADDRESS = "127.0.0.1:9390"


def programs() -> Path:
    """The folder with prometheus and promtool, unpacked from the package and kept; nothing is installed or started."""
    said = run(["apt-cache", "show", "--no-all-versions", PACKAGE], timeout=60).text
    version = next(line.split()[1] for line in said.splitlines() if line.startswith("Version: "))
    kept = cache_root() / "prometheus" / f"{version}-{platform.machine()}".replace("/", "_")
    if not (kept / "usr/bin/promtool").exists():
        kept.mkdir(parents=True, exist_ok=True)
        run(["apt-get", "download", f"{PACKAGE}={version}"], timeout=300, cwd=kept)
        (package,) = kept.glob("*.deb")
        run(["dpkg-deb", "--extract", package, kept], timeout=120)
        package.unlink()
    return kept / "usr/bin"


class Prometheus:
    """One that scrapes `target` every second."""

    def __init__(self, node: BoxNode, folder: Path, target: str) -> None:
        self._node, self._folder, self._programs = node, folder, programs()
        scrape = {"job_name": "exporter", "honor_labels": True, "static_configs": [{"targets": [target]}]}
        whole = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(whole))

    def ask(self, expression: str) -> dict[tuple[str, str], float]:
        """An instant query: values by device and pod."""
        words = ["query", "instant", "--format=json", f"http://{ADDRESS}", expression]
        answer = self._node.enter(self._programs / "promtool", *words, check=False)
        found = json.loads(answer.stdout or b"[]") if answer.code == 0 else []
        return {
            (one["metric"].get("device", ""), one["metric"].get("pod", "")): float(one["value"][1]) for one in found
        }

    @contextlib.contextmanager
    def running(self) -> Iterator["Prometheus"]:
        """For as long as the block runs."""
        flags = f"--config.file={self._folder}/prometheus.yaml --storage.tsdb.path={self._folder}/data"
        flags += f" --web.listen-address={ADDRESS} --log.level=warn"
        log = self._folder / "prometheus.log"
        start = f"setsid {self._programs}/prometheus {flags} > {log} 2>&1 & echo $!"
        pid = self._node.enter("sh", "-c", start).text.strip()
        try:
            soon(lambda: self.ask("up"), 60)
            yield self
        finally:
            self._node.enter("kill", pid, check=False)
