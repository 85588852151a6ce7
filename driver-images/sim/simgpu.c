/*
 * simgpu: the module of the simulated driver, without a function. It is compiled for a kernel, checked against its
 * symbols and booted with it, and fails to compile if a GPU driver would.
 */
#include <linux/init.h>
#include <linux/module.h>

#if !IS_ENABLED(CONFIG_DRM)
#error "simgpu needs a kernel with DRM"
#endif

static int __init simgpu_init(void)
{
	return 0;
}

static void __exit simgpu_exit(void)
{
}

module_init(simgpu_init);
module_exit(simgpu_exit);
MODULE_DESCRIPTION("A driver of no device, for tests");
MODULE_LICENSE("Apache-2.0"); /* as the rest of this repository: it uses no symbol that is for GPL modules only */
MODULE_VERSION(SIM_VERSION);
