"""The controller in virtual time: the same forecast and the same decisions as the product, on simulated state."""
