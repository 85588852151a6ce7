"""The kubelet of the node: its processes, its settings, its health, the devices that it advertises.

Here: reading, ending and configuring it.
Not here: the order of these steps (upgrade).
"""
