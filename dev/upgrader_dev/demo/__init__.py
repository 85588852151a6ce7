"""The demo: two training jobs live through an upgrade of driver, plugin and kubelet; every number is measured."""
