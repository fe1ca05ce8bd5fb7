/* Process 1 of the stand-ins for web servers: runs a command, and ends at once when it is asked to, as Apache and nginx do. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(0); }

int main(int argc, char **argv) {
	signal(SIGTERM, end);
	signal(SIGINT, end);
	signal(SIGQUIT, end);
	signal(SIGWINCH, end);
	pid_t child = fork();
	if (child == 0) {
		execv(argv[1], argv + 1);
		_exit(127);
	}
	int status;
	for (pid_t p; (p = wait(&status)) > 0;)
		if (p == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	return 1;
}
