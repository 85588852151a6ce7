"""Our custom resources as manifests, and what an upgrade changes on a Node as merge patches. Pure.

Here: what is written, as data.
Not here: writing it.
"""
