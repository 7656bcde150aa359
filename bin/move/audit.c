/*
 * audit: looks at every server of the registry, and names what contradicts itself.
 *
 * Each server is asked once for all that it has (audit.sql), all at the same time; one query
 * at the directory sees all answers together, in a temporary table, and makes of each
 * contradiction a line with what mends it.  Nothing is judged here.  --fix types what can lose nothing, and
 * looks again.
 */
#include "ask.h"
#include "commands.h"
#include "sql/audit.inc"

typedef struct Audit
{
	const char *registry;
	PGconn	   *directory;
	PGconn	   *at;				/* where the last that mends was typed */
	int			nfound;
	int			nfixed;
} Audit;

/* Ask the directory, each server that it names, and each that a move of one of these does. */
static bool
collect(Audit *audit, bool tells)
{
	PGconn	   *conn = audit->directory;
	Server	   *servers = pg_malloc0(sizeof(Server));

	run(conn, "DROP TABLE IF EXISTS pg_temp.answer; CREATE TEMP TABLE answer (n serial, address text, facts jsonb)");
	servers->home = home_of_connection(conn);
	servers->label = "the directory";
	servers->conninfo = audit->registry;
	for (int n = 1, round = 0; n > 0; round++)
	{
		PGresult   *homes;

		ask_all(servers, n, text_of(AUDIT_FACTS_SQL), 0, conn);

		/*
		 * First those that answer, since they tell which are former
		 * addresses.
		 */
		for (int k = 0; k < 2 * n; k++)
		{
			int			i = k % n;
			const Server *asked = &servers[servers[i].at];

			if ((asked->answer == NULL) != (k >= n))
				continue;

			/* It is not missed, nor asked again. */
			if (asked->answer == NULL && query_bool(conn, AUDIT_FORMER_SQL, literal(conn, servers[i].home)))
			{
				run(conn, "INSERT INTO answer VALUES (-1, %s)", literal(conn, servers[i].home));
				continue;
			}
			if (asked->answer == NULL && asked == &servers[i] && (round == 0 || tells))
			{
				char	   *name = query_text(conn, "SELECT name FROM snowid.servers WHERE home = %s", literal(conn, asked->home));

				report_error("%s cannot be asked what it has: %s", asked->label, asked->trouble);
				if (name != NULL && strncmp(asked->trouble, IT_ANSWERS, strlen(IT_ANSWERS)) != 0)
					report_hint("Bring it back; or promote its standby, or restore it, and type: snowid-fleet add %s NEWHOME --registry %s",
								name, shell_word(without_password("--registry", audit->registry)));
				audit->nfound++;
			}
			run(conn, "INSERT INTO answer (address, facts) VALUES (%s, %s)", literal(conn, servers[i].home),
				literal(conn, asked->answer == NULL ? NULL : PQgetvalue(asked->answer, 0, 0)));
		}
		if (round == 0 && servers->answer == NULL)
			return false;
		homes = query(conn, AUDIT_HOMES_SQL);
		n = PQntuples(homes);
		servers = pg_malloc0((n + 1) * sizeof(Server));
		for (int i = 0; i < n; i++)
			servers[i].conninfo = servers[i].label = servers[i].home = field(homes, i, 0);
		PQclear(homes);
	}
	return true;
}

/* Type what mends it, as the role that was let in.  What is in its way is told. */
static bool
fix(Audit *audit, const char *place, const char *command)
{
	const char *conninfo = strcmp(place, home_of_connection(audit->directory)) == 0 ? audit->registry : place;

	if (audit->at == NULL || strcmp(label_of(audit->at), place) != 0)
	{
		PQfinish(audit->at);
		audit->at = open_connection(place, conninfo);
	}
	if (PQstatus(audit->at) != CONNECTION_OK)
	{
		take_user_of(audit->directory);
		PQfinish(audit->at);
		audit->at = open_connection(place, conninfo);
		take_user_of(NULL);
	}

	/* Not in one transaction: that cannot drop a subscription or a slot. */
	for (const char *next; *command != '\0'; command = next)
	{
		next = strstr(command, "; ");
		next = next == NULL ? command + strlen(command) : next + 2;
		if (!try_run(audit->at, "%.*s", (int) (next - command), command))
		{
			report_warning("%s: %s", place, PQerrorMessage(audit->at));
			return false;
		}
	}
	return true;
}

/* Tell what is found, or mend it; false if the directory cannot be asked. */
static bool
look(Audit *audit, bool is_to_fix)
{
	PGresult   *found;

	if (!collect(audit, !is_to_fix))
		return false;
	found = query(audit->directory, AUDIT_FINDINGS_SQL, literal(audit->directory, without_password("--registry", audit->registry)));
	for (int row = 0; row < PQntuples(found); row++)
	{
		const char *what = printable(PQgetvalue(found, row, 0));
		const char *place = field(found, row, 1);
		const char *command = PQgetvalue(found, row, 2);
		bool		is_safe = PQgetvalue(found, row, 3)[0] == 't';

		if (is_to_fix && is_safe && place != NULL && fix(audit, place, command))
		{
			printf("mended: %s\n", what);
			audit->nfixed++;
		}
		else if (!is_to_fix)
		{
			printf("FAILED  %s\n", what);
			printf("        %s%s%s%s\n", place != NULL ? "at " : "type: ", place != NULL ? printable(place) : "", place != NULL ? ", type: " : "", printable(command));
			audit->nfound++;
		}
	}
	PQclear(found);
	return true;
}

int
command_audit(const MoveOptions *options)
{
	Audit		audit = {.registry = options->registry};

	setenv("PGCONNECT_TIMEOUT", "10", 0);
	audit.directory = open_connection("directory", options->registry);
	if (PQstatus(audit.directory) != CONNECTION_OK)
		return report_error("%s", PQerrorMessage(audit.directory)), EXIT_USAGE;
	if (!can_gather(audit.directory))
		return EXIT_USAGE;

	/* What is mended shows what else there is: a closed copy can go. */
	for (int before = -1; options->fix && before < audit.nfixed;)
	{
		before = audit.nfixed;
		if (!look(&audit, true))
			return EXIT_USAGE;
	}
	if (!look(&audit, false))
		return EXIT_USAGE;
	printf("%s servers looked at, %d contradictions%s\n", query_text(audit.directory, "SELECT count(DISTINCT facts ->> 'run') FROM answer"),
		   audit.nfound, options->fix ? text_of(", %d mended", audit.nfixed) : "");
	return audit.nfound == 0 ? EXIT_DONE : EXIT_FAILED;
}
