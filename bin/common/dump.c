/*
 * pg_dump and pg_restore: where they are, what they say of some schemas, and how
 * that can be run.
 */
#include "connection.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* All that can be read there, which is closed.  It is a text. */
char *
read_all(int fd)
{
	PQExpBufferData buf;
	char		chunk[65536];
	ssize_t		n;

	initPQExpBuffer(&buf);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		appendBinaryPQExpBuffer(&buf, chunk, n);
	close(fd);
	if (PQExpBufferDataBroken(buf))
	{
		report_error("out of memory");
		fail();
	}
	if (strlen(buf.data) != buf.len)
	{
		report_error("what should be a text has a byte 0");
		exit(EXIT_USAGE);
	}
	return buf.data;
}

/* Where a program of PostgreSQL's is: as told, beside this one, or in the PATH. */
char *
find_program(const char *bindir, const char *name)
{
	char		self[MAXPGPATH];
	ssize_t		len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char	   *path;

	if (bindir != NULL)
		return text_of("%s/%s", bindir, name);
	self[Max(len, 0)] = '\0';
	get_parent_directory(self);
	path = text_of("%s/%s", self, name);
	return access(path, X_OK) == 0 ? path : text_of("%s", name);
}

bool		programs_are_apart = false;

/*
 * Start a program, with its output and its errors to file descriptors; 0 after
 * saying why that has failed.  No shell is involved, a password goes through the environment,
 * and it does not outlive us.
 */
pid_t
start_program(const char *bindir, const char **argv, PGconn *conn, int output, int errors)
{
	char	   *program = find_program(bindir, argv[0]);
	char	   *password = PQpass(conn);
	pid_t		parent = getpid();
	pid_t		child;

	fflush(NULL);
	child = fork();
	if (child < 0)
	{
		report_error("could not start \"%s\": %m", program);
		return 0;
	}
	if (child > 0)
		return child;
#ifdef __linux__
	prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
	if (getppid() != parent || (programs_are_apart && setpgid(0, 0) != 0))
		_exit(127);
	if (password != NULL && password[0] != '\0')
		setenv("PGPASSWORD", password, 1);
	setenv("PGTZ", "UTC", 1);
	setenv("PGDATESTYLE", "ISO, MDY", 1);
	dup2(output, STDOUT_FILENO);
	dup2(errors, STDERR_FILENO);
	execvp(program, (char *const *) argv);
	report_error("could not run \"%s\": %m", program);
	_exit(127);
}

static bool
await_program(pid_t child, const char *name)
{
	int			status;

	if (child != 0 && waitpid(child, &status, 0) == child && status == 0)
		return true;
	report_error("\"%s\" has failed", name);
	return false;
}

/* Run a program, and return what it says; NULL after saying what has failed. */
static char *
output_of(const char *bindir, const char **argv, PGconn *conn)
{
	char	   *output;
	int			fds[2];
	pid_t		child;

	if (pipe(fds) < 0)
	{
		report_error("could not make a pipe: %m");
		return NULL;
	}
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	child = start_program(bindir, argv, conn, fds[1], STDERR_FILENO);
	close(fds[1]);
	output = read_all(fds[0]);
	return await_program(child, argv[0]) ? output : NULL;
}

/* What a program says, its errors too, within a limit: then it is killed. */
char *
said_by(const char **argv, int64 limit_ms, int *status)
{
	PQExpBufferData said;
	int			ends[2];
	pid_t		pid;
	char		part[4096];
	ssize_t		n;
	struct pollfd more = {.events = POLLIN};
	int64		end = now_ms() + limit_ms;

	initPQExpBuffer(&said);
	if (pipe2(ends, O_CLOEXEC) != 0 || (pid = start_program(NULL, argv, NULL, ends[1], ends[1])) == 0)
		fail();
	close(ends[1]);
	more.fd = ends[0];
	while (now_ms() < end && poll(&more, 1, (int) (end - now_ms())) > 0 && (n = read(ends[0], part, sizeof(part))) > 0)
		appendBinaryPQExpBuffer(&said, part, n);
	if (now_ms() >= end)
		kill(pid, SIGKILL);
	close(ends[0]);
	waitpid(pid, status, 0);
	return said.data;
}

/*
 * The definitions of schemas, by pg_dump: a script of all; or an archive in a file, out
 * of a snapshot, if there is one.  NULL after saying what has failed.  As we do, pg_dump sets
 * its search path before all else.
 */
static char *
run_pg_dump(PGconn *conn, const char *bindir, char *const *schemas, int nschemas,
			const char *snapshot, int archive)
{
	const char *always[] = {"pg_dump", "--schema-only", "--no-publications", "--no-subscriptions", "--no-password",
	"--lock-wait-timeout=60s", "--encoding=UTF8", text_of("--dbname=%s", conninfo_for_programs(conn))};
	const char **argv = pg_malloc0(sizeof(char *) * (nschemas + lengthof(always) + 4));
	int			argc = lengthof(always);
	char	   *script = NULL;

	memcpy(argv, always, sizeof(always));
	for (int i = 0; i < nschemas; i++)
		argv[argc++] = text_of("--schema=%s", ident(conn, schemas[i]));
	if (archive < 0)
		script = output_of(bindir, argv, conn);
	else
	{
		if (snapshot != NULL)
			argv[argc++] = text_of("--snapshot=%s", snapshot);
		argv[argc++] = "--format=custom";
		argv[argc++] = "--compress=0";
		if (await_program(start_program(bindir, argv, conn, archive, STDERR_FILENO), argv[0]))
			script = "";
	}
	pg_free(argv);
	return script;
}

char *
dump_definitions(PGconn *conn, const char *bindir, char *const *schemas, int nschemas)
{
	return run_pg_dump(conn, bindir, schemas, nschemas, NULL, -1);
}

bool
dump_archive(PGconn *conn, const char *bindir, char *const *schemas, int nschemas,
			 const char *snapshot, int archive)
{
	return run_pg_dump(conn, bindir, schemas, nschemas, snapshot, archive) != NULL;
}

/* A schema with its rows, in pg_dump's directory format. */
bool
dump_directory(PGconn *conn, const char *bindir, const char *schema, const char *path)
{
	const char *argv[] = {"pg_dump", "--format=directory", "--no-password", text_of("--file=%s", path),
		text_of("--schema=%s", ident(conn, schema)), text_of("--dbname=%s", conninfo_for_programs(conn)), NULL
	};

	return await_program(start_program(bindir, argv, conn, STDOUT_FILENO, STDERR_FILENO), argv[0]);
}

/* What pg_restore says of an archive: all of the definitions as a script, or as options have it. */
char *
script_of(PGconn *conn, const char *bindir, int archive, const char *option, const char *other)
{
	const char *argv[] = {"pg_restore", "--file=-", text_of("/dev/fd/%d", archive), option, other, NULL};

	return output_of(bindir, argv, conn);
}

/* Begin to make the others by so many sessions: all, or those of a list. */
pid_t
start_after_rows(PGconn *conn, const char *bindir, int archive, int jobs, int list, int errors)
{
	const char *argv[] = {
		"pg_restore", "--section=post-data", "--no-password", text_of("--jobs=%d", jobs),
		text_of("--dbname=%s", conninfo_for_programs(conn)), text_of("/dev/fd/%d", archive),
		list < 0 ? NULL : text_of("--use-list=/dev/fd/%d", list), NULL
	};

	return start_program(bindir, argv, conn, STDERR_FILENO, errors);
}

/*
 * Make a script of pg_dump's what a server can run, by commenting lines out: psql's
 * \restrict around it, and a setting that an older target does not know.  What looks
 * like these in a function's body, between them, stays.
 */
void
strip_script(char *script, const Side *target)
{
	char	   *settings = strstr(script, "\nSET ");
	char	   *line = strstr(script, "\n\\restrict ");
	char	   *next;

	if (line != NULL && line < settings)
	{
		memcpy(line + 1, "--", 2);
		while ((next = strstr(line + 1, "\n\\unrestrict ")) != NULL)
			line = next;
		memcpy(line + 1, "--", 2);
	}
	line = strstr(script, "\nSET transaction_timeout = 0;\n");
	if (line != NULL && !has_transaction_timeout(target) && line < strstr(settings, "\n\n"))
		memcpy(line + 1, "--", 2);
}
