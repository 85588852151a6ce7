"""Defaults are written out where leaving them out would be read as "as before"."""

from upgrader.api.explicit import explicit_json
from upgrader.api.v1alpha1 import DevicePluginSpec, DriverSpec, GpuStackSpec, PlanCounts


def test_every_field_is_there_also_inside():
    spec = GpuStackSpec(
        node_selector={"pool": "a"},
        driver=DriverSpec(vendor="sim", version="1.0"),
        device_plugin=DevicePluginSpec(image="registry/plugin:1"),
    )
    assert explicit_json(spec) == {
        "nodeSelector": {"pool": "a"},
        "driver": {
            "vendor": "sim",
            "version": "1.0",
            "unverified": "Refuse",
            "parameters": {},
            "onUnloadFailure": "Fail",
        },
        "devicePlugin": {
            "management": "Managed",
            "image": "registry/plugin:1",
            "resourceName": "nvidia.com/gpu",
            "sharing": {},
        },
        "kubelet": {"manage": False, "binary": "/usr/bin/kubelet", "settings": {}},
        "runtime": {"management": "External"},
        "featureDiscovery": {"management": "External", "maxUnavailable": "10%"},
        "monitoring": {"management": "External", "maxUnavailable": "10%"},
        "validation": {},
        "host": {"stop": []},
        "limits": {
            "unloadingSeconds": 300,
            "driverUnloadSeconds": 600,
            "upgradingSeconds": 2700,
            "loadingSeconds": 900,
            "validatingSeconds": 1800,
        },
        "guardRails": {"taint": False, "priorityClasses": [], "quotas": []},
        "nodeFeatures": "External",
        "onDrift": "Report",
        "gangs": [],
        "historyLimit": 10,
    }


def test_a_number_that_is_zero_is_said():
    assert explicit_json(PlanCounts(nodes=4)) == {
        "nodes": 4,
        "succeeded": 0,
        "failed": 0,
        "interruptions": 0,
        "restored": 0,
    }
