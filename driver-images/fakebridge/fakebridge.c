// SPDX-License-Identifier: GPL-2.0
/*
 * A PCI host bridge in a separate domain with one function that answers configuration reads only: vendor 10de (NVIDIA),
 * device fffe (no product), class 0680 (other bridge). It has no BAR and no interrupt.
 *
 * nvidia.ko unloads itself if it finds no GPU, unless there is an NVSwitch, which it recognizes by this vendor and class.
 * With this module it stays loaded on a machine without NVIDIA hardware. For tests only.
 */
#include <linux/module.h>
#include <linux/pci.h>

#define DOMAIN 0x1000
#define IDENTITY 0xfffe10deU		/* device, vendor */
#define CLASS_AND_REVISION 0x06800001U

static struct pci_sysdata place = { .domain = DOMAIN, .node = NUMA_NO_NODE };
static struct pci_bus *root;

static int answer(struct pci_bus *bus, unsigned int function, int where, int size, u32 *value)
{
	u32 word = 0;

	if (pci_is_root_bus(bus) && function == 0) {
		if ((where & ~3) == PCI_VENDOR_ID)
			word = IDENTITY;
		else if ((where & ~3) == PCI_CLASS_REVISION)
			word = CLASS_AND_REVISION;
		word >>= 8 * (where & 3);
		*value = size == 4 ? word : word & ((1U << (8 * size)) - 1);
		return PCIBIOS_SUCCESSFUL;
	}
	*value = ~0U;			/* as on a bus without a device */
	return PCIBIOS_DEVICE_NOT_FOUND;
}

/* Writes are ignored: a driver that sizes BARs reads zero, which means that there is none. */
static int ignore(struct pci_bus *bus, unsigned int function, int where, int size, u32 value)
{
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops configuration = { .read = answer, .write = ignore };

static int __init appear(void)
{
	LIST_HEAD(no_resources);

	root = pci_scan_root_bus(NULL, 0, &configuration, &place, &no_resources);
	if (!root)
		return -ENOMEM;
	pci_bus_add_devices(root);
	return 0;
}

static void __exit disappear(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(root);
	pci_remove_root_bus(root);
	pci_unlock_rescan_remove();
}

module_init(appear);
module_exit(disappear);
MODULE_DESCRIPTION("A PCI function that looks like an NVSwitch to nvidia.ko; for tests only");
MODULE_VERSION("1.0");
MODULE_LICENSE("GPL");
