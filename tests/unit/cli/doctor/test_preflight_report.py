"""`upgrader preflight` on the fake cluster: what the Jobs are told, and what is said where nothing can be told."""

import msgspec
import pytest
import yaml

from tests.support.terminal import upgrader
from upgrader.api.resources import DRIVER_IMAGES, NODES
from upgrader.core.node_protocol.orders import NodeDriver, ValidateDriverOrder
from upgrader.stack.node_pods.preflight import preflight_job
from upgrader.stack.settings import StackSettings

IMAGE = "registry.example/node@sha256:" + "1" * 64


def look(rig, *words):
    return upgrader(rig, "preflight", *words, "--image", IMAGE)


def test_a_job_for_each_node_is_told_what_should_be_there(rig):
    names = [one["metadata"]["name"] for one in rig.cluster.store.list_values(NODES)][:2]
    ended = look(rig, *names, "--run", "train-17")
    assert ended.exit_code == 0, ended.output
    boots = [rig.cluster.store.find(NODES, name)["status"]["nodeInfo"].get("bootID", "") for name in names]
    assert list(yaml.safe_load_all(ended.stdout)) == [
        preflight_job(
            name,
            "train-17",
            ValidateDriverOrder(
                driver=NodeDriver(vendor="sim", version="1.0"), resource="nvidia.com/gpu", boot_id=boot, expected=8
            ),
            StackSettings(node_image=IMAGE),
        )
        for name, boot in zip(names, boots, strict=True)
    ]


def test_looks_without_a_name_are_called_by_the_time(rig):
    name = rig.cluster.store.list_values(NODES)[0]["metadata"]["name"]
    first = yaml.safe_load(look(rig, name).stdout)["metadata"]["name"]
    rig.cluster.clock.advance(1)
    assert yaml.safe_load(look(rig, name).stdout)["metadata"]["name"] != first


@pytest.mark.parametrize("words", [("nowhere",), ()])
def test_a_node_that_is_not_there(rig, words):
    ended = look(rig, *words)
    assert ended.exit_code == (1 if words else 64)
    assert "node nowhere not found" in ended.stderr or not words


def test_a_node_of_no_stack(rig):
    name = rig.cluster.store.list_values(NODES)[0]["metadata"]["name"]
    rig.cluster.store.change(NODES, name, {"metadata": {"labels": {"pool": None}}})
    assert f"no stack selects node {name}" in look(rig, name).stderr


def test_a_driver_of_which_nothing_is_known(rig):
    name = rig.cluster.store.list_values(NODES)[0]["metadata"]["name"]
    for image in rig.cluster.store.list_values(DRIVER_IMAGES):
        rig.cluster.store.change(DRIVER_IMAGES, image["metadata"]["name"], {"status": {"key": "f" * 16}})
    assert "no driver of an existing DriverImage" in look(rig, name).stderr


def test_no_image(rig, monkeypatch):
    monkeypatch.delenv("UPGRADER_NODE_IMAGE", raising=False)
    assert "Pass --image" in upgrader(rig, "preflight", "node").stderr


def test_the_order_fits_the_wire():
    order = ValidateDriverOrder(driver=NodeDriver(vendor="sim", version=""), resource="r")
    assert msgspec.json.decode(msgspec.json.encode(order), type=ValidateDriverOrder) == order
