"""Pushes images and bundles to registries with their documents, and verifies them as a consumer does.

Here: builds of many cells in one run, too.
Not here: the build of one image (builder).
"""
