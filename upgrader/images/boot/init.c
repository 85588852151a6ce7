/*
 * The init process of a boot check, and its only process: loads the modules in the order of /list, and writes the results
 * to the kernel's log, which appears on the console. Lines of /list are "FILE" or "FILE PARAMETERS".
 *
 * A program instead of a shell with insmod, since insmod prints an ambiguous text instead of errno. It is linked
 * statically, since the initramfs has no libraries.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load(const char *file, const char *parameters)
{
	int answer, module = open(file, O_RDONLY | O_CLOEXEC);

	if (module < 0)
		return errno;
	answer = syscall(SYS_finit_module, module, parameters, 0) ? errno : 0;
	close(module);
	return answer;
}

/* The kernel's log requires one write per line. dprintf() fails on this file, which has no position. */
static void say(int log, const char *what, const char *file, const char *rest)
{
	char line[4096];
	int length = snprintf(line, sizeof line, "boot-check: %s %s%s", what, file, rest);

	if (write(log, line, length < (int)sizeof line ? length : (int)sizeof line - 1) < 0)
		perror("boot-check");
}

int main(void)
{
	char line[4096], answer[32];
	FILE *list;
	int log;

	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	list = fopen("/list", "re");
	while (list && fgets(line, sizeof line, list)) {
		char *file = strtok(line, " \n"), *rest = strtok(NULL, "\n");

		if (!file)
			continue;
		say(log, "loading", file, "");
		snprintf(answer, sizeof answer, " errno=%d", load(file, rest ? rest : ""));
		say(log, "loaded", file, answer);
	}
	say(log, "end", "", "");
	sync();
	reboot(RB_POWER_OFF);
	return 1;			/* the kernel panics when init ends, which ends the machine */
}
