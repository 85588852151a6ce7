"""Builds an image from a definition on this machine: sources, sandbox, compiler, file tree, image, boot check.

Here: one cell at a time, and the resource budget that several builds share.
Not here: registries.
"""
