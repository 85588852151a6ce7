"""deploy/build-network.yaml is about build pods and nobody else, and lets them go to DNS and the registry only."""

import yaml

from tests.support.rendered import RENDERED
from tests.support.repository import ROOT
from upgrader.stack.settings import BuildSettings


def policy():
    text = (ROOT / "deploy/build-network.yaml").read_text()
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    (document,) = yaml.safe_load_all(code.replace("REGISTRY_CIDR", "10.20.30.40/32").replace("REGISTRY_PORT", "443"))
    return document


def test_it_selects_build_pods_and_no_other():
    wanted = policy()["spec"]["podSelector"]["matchLabels"].items()
    selected = {name for name, made in RENDERED.items() if wanted <= pod(made())["metadata"]["labels"].items()}
    assert selected == {"build-job", "build-job-signed"}
    assert policy()["metadata"]["namespace"] == BuildSettings().namespace


def test_what_is_not_named_is_not_reached():
    spec = policy()["spec"]
    assert (spec["policyTypes"], spec.get("ingress", [])) == (["Ingress", "Egress"], [])
    reached = [({key for to in rule["to"] for key in to}, rule["ports"]) for rule in spec["egress"]]
    assert reached == [
        ({"namespaceSelector", "podSelector"}, [{"protocol": one, "port": 53} for one in ("UDP", "TCP")]),
        ({"ipBlock"}, [{"protocol": "TCP", "port": 443}]),
    ]
    assert [to["ipBlock"]["cidr"] for rule in spec["egress"] for to in rule["to"] if "ipBlock" in to] == [
        "10.20.30.40/32"
    ]


def pod(manifest):
    return manifest["spec"].get("template", manifest)
