"""Builds of driver images: what a build needs, the cells of the matrix, what a build reports, why it failed.

Here: the values that `upgrader images` and build Jobs work with.
Not here: the objects of the cluster (driver_image).
"""
