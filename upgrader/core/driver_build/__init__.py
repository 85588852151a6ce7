"""Builds of driver images: their inputs, the cells of the matrix, their results, their failures.

Here: values of `upgrader images` and of build Jobs.
Not here: the objects of the cluster (driver_image).
"""
