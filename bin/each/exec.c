/*
 * exec: a program, such as a team's own tool of migrations, once for each shard.
 *
 * It finds its shard in its environment, and needs to know nothing of shards: the
 * schema is first on its search path, so what it keeps of itself lives there, too.
 * In the shard's ledger, its command line stands in the place of a script.
 */
#include "each.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of a program that asks to be run again later: EX_TEMPFAIL. */
#define AGAIN 75

static char **command;

/* A text with what is not plain in it written as the format says, for a character. */
static char *
escaped(const char *text, const char *plain, const char *fmt)
{
	PQExpBufferData s;

	initPQExpBuffer(&s);
	for (; *text !='\0'; text ++)
		if (strchr(plain, *text) != NULL || (*text >='0' && *text <='9') ||(*text >='a' && *text <='z') ||(*text >='A' && *text <='Z'))
			appendPQExpBufferChar(&s, *text);
		else
			appendPQExpBuffer(&s, fmt, (unsigned char) *text);
	return keep_text(s.data);
}

#define in_url(text)	escaped(text, "-._~", "%%%02X")

/* What tells a program of its shard. */
static void
set_environment(PGconn *conn, int shard, const char *schema, const char *path)
{
	const char *given = getenv("PGOPTIONS");
	char	   *search_path = text_of("%s%s%s", ident(conn, schema), path[0] != '\0' ? ", " : "", path);
	char	   *own = text_of("-c search_path=%s", escaped(search_path, "-_.,\"$", "\\%c"));
	char	   *password = PQpass(conn);
	bool		has_password = password != NULL && password[0] != '\0';

	setenv("PGHOST", PQhost(conn), 1);
	setenv("PGPORT", PQport(conn), 1);
	setenv("PGDATABASE", PQdb(conn), 1);
	setenv("PGUSER", PQuser(conn), 1);
	if (has_password)
		setenv("PGPASSWORD", password, 1);
	setenv("PGOPTIONS", text_of("%s%s%s", given != NULL ? given : "", given != NULL ? " " : "", own), 1);
	setenv("SNOWID_SHARD", text_of("%d", shard), 1);
	setenv("SNOWID_SCHEMA", schema, 1);
	setenv("DATABASE_URL", text_of("postgresql://%s%s%s@%s:%s/%s?options=%s", in_url(PQuser(conn)), has_password ? ":" : "",
								   has_password ? in_url(password) : "", in_url(PQhost(conn)), PQport(conn), in_url(PQdb(conn)), in_url(own)), 1);
}

/* Tell all that a program has said, in one piece. */
static void
tell_output(int shard, int output)
{
	char	   *text;

	lseek(output, 0, SEEK_SET);
	text = read_all(output);
	text = text_of("%s: shard %d: the program has said:\n%s%s", progname, shard, text, text[0] != '\0' && text[strlen(text) - 1] != '\n' ? "\n" : "");

	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		report_warning("shard %d: %m", shard);
}

/* Run the program for a shard.  DONE if it says so by its exit status. */
State
run_program(PGconn *conn, Task *task, const char *schema, const char *path)
{
	FILE	   *file = tmpfile();
	pid_t		worker = getpid();
	pid_t		child = file != NULL ? fork() : -1;
	int			status;

	if (child == 0)
	{
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != worker)
			_exit(127);
		set_environment(conn, task->shard, schema, path);
		dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
		dup2(fileno(file), STDOUT_FILENO);
		dup2(fileno(file), STDERR_FILENO);
		execvp(command[0], command);
		fprintf(stderr, "could not run \"%s\": %s\n", command[0], strerror(errno));
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
	{
		set_message(task, "could not start a program: %s", strerror(errno));
		return FAILED;
	}
	if (status != 0)
	{
		set_message(task, WIFEXITED(status) ? "exit status %d" : "ended by signal %d", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
		tell_output(task->shard, dup(fileno(file)));
	}
	fclose(file);
	return status == 0 ? DONE : WIFEXITED(status) && WEXITSTATUS(status) == AGAIN ? TODO : FAILED;
}

/* Let a command be what is run. */
void
take_command(char **argv)
{
	PQExpBufferData line;

	command = argv;
	initPQExpBuffer(&line);
	appendPQExpBufferStr(&line, EXEC);
	for (; *argv != NULL; argv++)
		appendPQExpBuffer(&line, " '%s'", escaped(*argv, " !\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~", "'\\%c'"));
	script.text = line.data;
	script.runs = true;
}
