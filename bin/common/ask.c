/*
 * One question to many servers, all at once, each with a limit.
 */
#include "ask.h"

#include <poll.h>

volatile sig_atomic_t stopping = false;

/* There is nothing to wait for. */
static short
give_up(Server *server, const char *why)
{
	server->trouble = printable(why);
	PQfinish(server->conn);
	server->conn = NULL;
	return 0;
}

/* It may be there, and have refused us, in whatever language.  Of one host that is told as fast as the refusal came. */
static bool
is_there(const Server *server)
{
	PGPing		ping = strchr(server->conninfo, ',') != NULL ? PQPING_NO_ATTEMPT : PQping(server->conninfo);

	return server->is_there || ping == PQPING_OK || ping == PQPING_REJECT;
}

/* It has not let us in, or ended the session. */
static short
give_up_refused(Server *server)
{
	return give_up(server, text_of("%s%s", is_there(server) ? IT_ANSWERS : "", PQerrorMessage(server->conn)));
}

static PGconn *
begin_connection(const Server *server)
{
	const char *const keywords[] = {"user", "dbname", "fallback_application_name", "client_encoding", NULL};
	const char *const values[] = {server->user, server->conninfo, progname, "UTF8", NULL};

	return (strchr(server->conninfo, ',') != NULL ? PQconnectdbParams : PQconnectStartParams) (keywords, values, true);
}

/* In a thread: a name is looked up, and what waits for a connection goes on to the next host; of several, as the other role, too. */
static void *
connect_server(void *given)
{
	Server	   *server = given;
	int64		start = now_ms();
	PGconn	   *conn = begin_connection(server);

	if (strchr(server->conninfo, ',') != NULL && PQstatus(conn) == CONNECTION_BAD)
	{
		/* Hosts that hang are not waited for twice. */
		PGPing		ping = now_ms() - start < ANSWER_MS / 4 ? PQping(server->conninfo) : PQPING_NO_ATTEMPT;

		server->is_there = ping == PQPING_OK || ping == PQPING_REJECT || strstr(PQerrorMessage(conn), "FATAL") != NULL;
		if (server->is_there)
		{
			PQfinish(conn);
			server->user = server->teller;
			conn = begin_connection(server);
		}
	}
	server->conn = conn;
	return NULL;
}

/* A step of a server's: connected, asked, answered.  Returns what to wait for, or 0 when there is no more. */
static short
go_on(Server *server, const char *sql, int limit_ms)
{
	PGresult   *res;

	if (!server->is_asked)
	{
		PostgresPollingStatusType status = PQconnectPoll(server->conn);

		if (status == PGRES_POLLING_FAILED && server->user == NULL && strchr(server->conninfo, ',') == NULL && is_there(server))
		{
			server->user = server->teller;
			PQfinish(server->conn);
			server->conn = begin_connection(server);
			return PQstatus(server->conn) == CONNECTION_BAD ? give_up_refused(server) : POLLOUT;
		}
		if (status == PGRES_POLLING_FAILED)
			return give_up_refused(server);
		if (status != PGRES_POLLING_OK)
			return status == PGRES_POLLING_READING ? POLLIN : POLLOUT;

		/* As in set_up_session(), but without waiting for it. */
		PQsendQuery(server->conn, text_of("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false), "
										  "pg_catalog.set_config('statement_timeout', '%d', false), pg_catalog.set_config('lock_timeout', '%d', false), "
										  "pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('jit', 'off', false); %s",
										  limit_ms, ANSWER_MS / 4, sql));
		server->is_asked = true;
	}
	if (!PQconsumeInput(server->conn))
		return give_up_refused(server);
	while (!PQisBusy(server->conn))
	{
		if ((res = PQgetResult(server->conn)) == NULL)
			return 0;
		if (!has_succeeded(res) && server->trouble == NULL)
			server->trouble = text_of(IT_ANSWERS "%s%s", printable(last_message), strcmp(last_sqlstate, "3F000") == 0 || strcmp(last_sqlstate, "42P01") == 0 ? "; type there: CREATE EXTENSION snowid;"
									  : strcmp(last_sqlstate, "42501") == 0 ? text_of("; type there: GRANT SELECT ON ALL TABLES IN SCHEMA snowid TO %s;", ident(server->conn, PQuser(server->conn))) : "");
		PQclear(server->answer);
		server->answer = res;
	}
	return POLLIN;
}

/* Ask all servers the same, at once.  One that is down or hangs costs its own answer. */
void
ask_all(Server *servers, int nservers, const char *sql, int more_ms, PGconn *teller)
{
	struct pollfd *waits = pg_malloc((nservers + 1) * sizeof(struct pollfd));
	int64		end;
	int			left;

	for (int i = 0; i < nservers; i++)
		servers[i].teller = PQuser(teller);
	for (int i = 0; i < nservers; i++)
		if (pthread_create(&servers[i].thread, NULL, connect_server, &servers[i]) != 0)
			fail();
	for (int i = 0; i < nservers; i++)
	{
		while (servers[i].conn == NULL && !stopping)
			wait_ms(1);
		if (stopping || pthread_join(servers[i].thread, NULL) != 0)
			return;
		servers[i].place = home_of_connection(servers[i].conn);
		for (servers[i].at = 0; strcmp(servers[servers[i].at].place, servers[i].place) != 0;)
			servers[i].at++;
		if (servers[i].at < i)
			give_up(&servers[i], "");
		waits[i].fd = -1;
		waits[i].events = waits[i].revents = POLLOUT;
	}
	end = now_ms() + ANSWER_MS + more_ms;
	do
	{
		left = 0;
		for (int i = 0; i < nservers; i++)
		{
			if (servers[i].conn == NULL || waits[i].events == 0)
				continue;
			if (waits[i].revents != 0)
				waits[i].events = go_on(&servers[i], sql, ANSWER_MS + more_ms);
			waits[i].fd = waits[i].events == 0 ? -1 : PQsocket(servers[i].conn);
			left += waits[i].events != 0;
		}
	} while (left > 0 && now_ms() < end && !stopping && (poll(waits, nservers, 200) >= 0 || errno == EINTR));
	for (int i = 0; i < nservers; i++)
	{
		if (servers[i].conn != NULL && waits[i].events != 0)
			give_up(&servers[i], text_of("no answer in %d s", (ANSWER_MS + more_ms) / 1000));
		if (servers[i].trouble != NULL)
		{
			PQclear(servers[i].answer);
			servers[i].answer = NULL;
		}
		PQfinish(servers[i].conn);
		servers[i].conn = NULL;
	}
	pg_free(waits);
}
