"""The demo: two training jobs live through an upgrade of driver, device plugin and kubelet; every number is measured."""
