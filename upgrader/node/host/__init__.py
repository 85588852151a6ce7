"""The node as a pod on it sees it: files, processes, boots, time, and how a command reports its result.

Here: what has nothing to do with drivers or kubelets.
Not here: anything that changes the node.
"""
