"""The kubelet of the node: its processes, its settings, its health, the devices that it offers.

Here: reading it, ending it, setting it.
Not here: when (upgrade).
"""
