/*
 * The first and only process of a boot check: loads the modules that /list names, in that order, and says in the
 * kernel's log, and so on the console, what the kernel answered. Lines of /list are "FILE" or "FILE PARAMETERS".
 *
 * A program and no shell with insmod, because insmod tells a text and no errno, and its texts are ambiguous.
 * Linked statically: nothing else is in the initramfs.
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

/* One write per line, as the kernel's log wants it; dprintf() refuses this file, as it cannot tell a position in it. */
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
	return 1;			/* the kernel panics when its first process ends, which ends the machine */
}
