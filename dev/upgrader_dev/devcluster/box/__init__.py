"""Nodes with a real kubelet and containerd in namespaces of this machine.

Here: the box from outside, and its first process.
Not here: virtual machines (virtual) and nodes that are API objects only (kwok).
"""
