"""Access to the node from a pod: files, processes, boots, time, and the results of commands.

Here: modules that are independent of drivers and of the kubelet.
Not here: anything that changes the node.
"""
