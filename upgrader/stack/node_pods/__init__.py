"""Pods and Jobs that run once on one node: prepare, upgrade, validate, preflight.

Here: their manifests, a rehearsal of them, and the results that they report.
Not here: DaemonSets (operands), and what the containers execute (upgrader.node).
"""
