"""Virtual nodes: machines of QEMU with a kernel of their own, that join the cluster as any node does."""
