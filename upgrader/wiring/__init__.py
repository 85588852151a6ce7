"""The composition root: which adapter stands behind which port, and the settings of a controller."""
