"""The composition root: the adapters of the ports, and the settings of a controller."""
