"""Manifests of custom resources, and merge patches for Nodes. Pure.

Here: request bodies.
Not here: requests.
"""
