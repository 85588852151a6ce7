"""The DriverImage: its state machine, the names of images, the selection of images for nodes, and garbage collection.

Here: decisions on DriverImages, from values.
Not here: how an image is built (driver_build).
"""
