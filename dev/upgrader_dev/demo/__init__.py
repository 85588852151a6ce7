"""The demo: an upgrade of driver, plugin and kubelet with running training jobs; every number is measured."""
