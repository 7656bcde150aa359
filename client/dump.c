/*
 * pg_dump: where it is, what it says of some schemas, and how that can be run.
 */
#include "connection.h"

#include <sys/wait.h>
#include <unistd.h>

static char *
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
	return buf.data;
}

/* Where pg_dump is: as told, beside this program, or in the PATH. */
char *
find_pg_dump(const char *bindir)
{
	char		self[MAXPGPATH];
	ssize_t		len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char	   *slash;

	if (bindir != NULL)
		return text_of("%s/pg_dump", bindir);
	if (len > 0)
	{
		self[len] = '\0';
		slash = strrchr(self, '/');
		if (slash != NULL)
		{
			char	   *path;

			*slash = '\0';
			path = text_of("%s/pg_dump", self);
			if (access(path, X_OK) == 0)
				return path;
		}
	}
	return pg_strdup("pg_dump");
}

/* A name as a pattern of pg_dump's that matches it alone. */
static char *
pattern_of(const char *name)
{
	PQExpBufferData buf;

	initPQExpBuffer(&buf);
	appendPQExpBufferChar(&buf, '"');
	for (const char *p = name; *p; p++)
	{
		if (*p == '"')
			appendPQExpBufferChar(&buf, '"');
		appendPQExpBufferChar(&buf, *p);
	}
	appendPQExpBufferChar(&buf, '"');
	return buf.data;
}

/*
 * Run pg_dump for the definitions of schemas, and return its script; NULL after
 * saying what has failed.  No shell is involved, and a password goes through
 * the environment.  As we do, pg_dump sets its search path before all else.
 */
char *
dump_definitions(PGconn *conn, const char *bindir, char *const *schemas, int nschemas)
{
	const char **argv = pg_malloc0(sizeof(char *) * (nschemas + 12));
	int			argc = 0;
	char	   *program = find_pg_dump(bindir);
	char	   *password = PQpass(conn);
	char	   *script;
	int			fds[2];
	int			status;
	pid_t		child;

	argv[argc++] = "pg_dump";
	argv[argc++] = "--schema-only";
	argv[argc++] = "--no-publications";
	argv[argc++] = "--no-subscriptions";
	argv[argc++] = "--no-password";
	argv[argc++] = "--lock-wait-timeout=60s";
	argv[argc++] = "--encoding=UTF8";
	for (int i = 0; i < nschemas; i++)
		argv[argc++] = text_of("--schema=%s", pattern_of(schemas[i]));
	argv[argc++] = text_of("--dbname=%s", conninfo_of_connection(conn));

	fflush(NULL);
	if (pipe(fds) < 0 || (child = fork()) < 0)
	{
		report_error("could not start \"%s\": %m", program);
		return NULL;
	}
	if (child == 0)
	{
		if (password != NULL && password[0] != '\0')
			setenv("PGPASSWORD", password, 1);
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execvp(program, (char *const *) argv);
		report_error("could not run \"%s\": %m", program);
		_exit(127);
	}
	close(fds[1]);
	script = read_all(fds[0]);
	if (waitpid(child, &status, 0) != child || status != 0)
	{
		report_error("\"%s\" has failed", program);
		return NULL;
	}
	pg_free(argv);
	return script;
}

/* Take out a line, in place, if it stands at the given spot. */
static void
drop_line(char *line)
{
	char	   *end = strchr(line, '\n');

	if (end == NULL)
		*line = '\0';
	else
		memmove(line, end + 1, strlen(end + 1) + 1);
}

/*
 * Make a script of pg_dump's what a server can run: without psql's \restrict
 * around it, and without a setting that an older target does not know.
 */
void
strip_script(char *script, const Side *target)
{
	char	   *line;
	char	   *next;

	/* Only before the first statement and at the end, never within a body. */
	for (line = script; *line != '\0'; line = next)
	{
		if (strncmp(line, "\\restrict ", 10) == 0)
		{
			char	   *end = strchr(line, '\n');
			char	   *key = pg_strdup(line + 10);
			char	   *last = NULL;
			char	   *unrestrict;

			key[end ? end - line - 10 : 0] = '\0';
			drop_line(line);
			unrestrict = text_of("\n\\unrestrict %s", key);
			for (char *p = line; (p = strstr(p, unrestrict)) != NULL; p++)
				last = p;
			if (last != NULL)
				drop_line(last + 1);
			break;
		}
		if (strncmp(line, "--", 2) != 0 && *line != '\n')
			break;
		next = strchr(line, '\n');
		if (next == NULL)
			break;
		next++;
	}
	if (!has_transaction_timeout(target))
	{
		line = strstr(script, "\nSET transaction_timeout = 0;\n");
		if (line != NULL)
			drop_line(line + 1);
	}
}
