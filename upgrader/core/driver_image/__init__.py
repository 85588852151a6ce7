"""The DriverImage: its state machine, the names of images, which image a node gets, what may be deleted.

Here: what follows from DriverImages and registries.
Not here: how an image is built (driver_build).
"""
