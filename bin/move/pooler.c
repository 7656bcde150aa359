/*
 * Clients behind PgBouncer: the pause in which their pools are led elsewhere
 * without their noticing.
 *
 * A hand-over with poolers goes in this order:
 *
 *		prepare_pools()		the journal names the poolers, before any is told
 *		pause_pools()		PAUSE on all of them: writers wait at the poolers, and
 *							none has a transaction open
 *		check_paused()		nobody has let them go on meanwhile
 *		keep_paused()		the decision: fence and opening, as without poolers
 *		route_pools()		the new file, RELOAD, RESUME; the journal forgets them
 *		resume_pools()		in place of that, if it was not decided
 *
 * PAUSE and RELOAD end the logins that PgBouncer has under way at the server, and
 * it takes that for a server that refuses: it opens no connection of that pool for
 * server_login_retry.  So this is next to 0 from before PAUSE until after RESUME, and
 * such that whoever finds it, of several programs or after a kill, knows what it was.
 * Until the next login is through, it also refuses who asks for the first time then:
 * so the PAUSE of a pool waits a moment for its logins.
 * And it begins one for who connects to a paused pool after RELOAD, and ends it at once:
 * so RESUME comes as soon after that as can be.
 *
 * So a journal that names poolers says that their pools are perhaps paused, or
 * lead to where the shards were.  settle_pools() ends that at the beginning of the next
 * command, but for shards that are open nowhere: those go on waiting at the
 * poolers, until the command has opened them.
 *
 * No pooler can endanger a move.  One that fails before the decision makes that
 * attempt fail; of one that fails later it is said that it has the old entries,
 * whose clients get SN001 from the fence.  No answer is awaited without a limit.
 */
#include "precheck.h"
#include "sql/queries.inc"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a console, and --pooler-command, may take where no writer's limit counts. */
#define CONSOLE_LIMIT_MS	5000
#define COMMAND_LIMIT_S		10

/* The same while they wait for no decision yet: for one more pool, or question. */
#define PAUSED_LIMIT_MS		200

/* How long a waiting client's login may take after RESUME, and how often to look. */
#define LOGIN_LIMIT_MS		2000
#define LOGIN_POLL_MS		10

/*
 * How often to connect to a port, for each process that may share it: one that is not
 * named, beside n that are, is missed by all with a chance of (n / (n + 1)) ^ (16 * (n + 1)),
 * less than one in eight million.
 */
#define PORT_PROBES			16

#define RESUME_IT			"if nobody needs that any more, type there: RESUME"

typedef struct Console
{
	const char *conninfo;
	const char *name;			/* the same without password: for messages,
								 * the journal */
	PGconn	   *conn;			/* NULL: not connected */
	PGconn	   *spare;			/* takes the place of one that gives no answer */
	const char *why;			/* there is no connection */
	bool		pending;		/* it has been asked, and has not answered */
	PGresult   *answer;			/* the last one; NULL: none in time, or lost */
	const char *login_retry;	/* what sets server_login_retry as it was;
								 * NULL: it is so */
	const char *no_retry;		/* what sets it for a pause */
	const char *const *before;	/* what else to ask before a pool; ends in
								 * NULL */
	int			asked;			/* for the pool of which shard; -1: none yet */
	bool		looks;			/* ... whether that has logins under way */
	const char *logins;			/* the pools that have some, as lines, ... */
	int64		logins_at;		/* ... and when that was seen */
	const char *peer_id;		/* among the processes that are its peers */
	const char *address;		/* where it listens */
} Console;

static const char no_retry[] = "SET server_login_retry";
static const char *const before_pause[] = {no_retry, NULL};
static const char *const before_resume[] = {"SHOW POOLS", no_retry, NULL};
static const char *const before_route[] = {"SHOW POOLS", "RELOAD", no_retry, NULL};

static Console *consoles = NULL;
static int	nconsoles = 0;

/* What this program has paused, until it is decided or resumed. */
static const Move *paused = NULL;

/* Until when a PAUSE waits for logins; 0: there is none. */
static int64 login_patience = 0;

/* -------- consoles -------- */

/* Connect, where we are not; the name of a pooler that cannot be reached, and why; or NULL. */
static const char *
open_consoles(void)
{
	const char *missing = NULL;

	for (Console *c = consoles; c < consoles + nconsoles; c++)
	{
		if (PQstatus(c->conn) != CONNECTION_OK)
		{
			PQfinish(c->conn);
			c->conn = connect_briefly(c->conninfo, NULL);
		}
		if (c->spare == NULL && c->conn != NULL)
			c->spare = connect_briefly(c->conninfo, NULL);
		if (c->spare == NULL)
			missing = text_of("%s: %s", c->name, c->why = connect_error);
	}
	return missing;
}

/* Name a pooler, once. */
static Console *
add_console(const char *conninfo)
{
	const char *name = without_password("--pooler", conninfo);
	int			i;

	for (i = 0; i < nconsoles && strcmp(consoles[i].name, name) != 0; i++)
		;
	if (i == nconsoles)
	{
		consoles = pg_realloc(consoles, ++nconsoles * sizeof(Console));
		memset(&consoles[i], 0, sizeof(Console));
		consoles[i].conninfo = conninfo;
		consoles[i].name = name;
	}
	return &consoles[i];
}

/* Name a journal's poolers. */
static void
add_journaled(const Journal *journal)
{
	for (char *name = strtok(pg_strdup(journal->poolers), "\n"); name != NULL; name = strtok(NULL, "\n"))
		(void) add_console(name);
}

/* Are there any, that the command or a journal names? */
static bool
has_poolers(const Move *move)
{
	for (int i = 0; i < move->options->npoolers && nconsoles < move->options->npoolers; i++)
		(void) add_console(move->options->poolers[i]);
	return nconsoles > 0;
}

static void
ask_console(Console *c, const char *command)
{
	PQclear(c->answer);
	c->answer = NULL;
	c->pending = c->conn != NULL && PQsendQuery(c->conn, command);
}

/* The next console that has answered, of those that were asked, or that one; NULL: none in time. */
static Console *
next_answer(Console *only, int64 until)
{
	struct pollfd *waiting = pg_malloc(sizeof(struct pollfd) * nconsoles);
	Console    *first = only != NULL ? only : consoles;
	Console    *end = only != NULL ? only + 1 : consoles + nconsoles;
	Console    *answered = NULL;
	PGresult   *res;
	int			n;

	do
	{
		n = 0;
		for (Console *c = first; c < end && answered == NULL; c++)
		{
			if (!c->pending)
				continue;
			if (!PQconsumeInput(c->conn) || !PQisBusy(c->conn))
				answered = c;
			waiting[n].fd = PQsocket(c->conn);
			waiting[n++].events = POLLIN;
		}
	} while (answered == NULL && n > 0 && poll(waiting, n, (int) Max(until - now_ms(), 0)) > 0);
	free(waiting);
	if (answered == NULL)
		return NULL;
	while ((res = PQgetResult(answered->conn)) != NULL)
	{
		PQclear(answered->answer);
		answered->answer = res;
	}
	answered->pending = false;
	return answered;
}

/* Who gives no answer is given up; the other connection takes its place. */
static void
give_up(Console *c)
{
	PQfinish(c->conn);
	c->conn = c->spare;
	c->spare = NULL;
	c->pending = false;
}

static bool
has_obeyed(const Console *c)
{
	ExecStatusType status = PQresultStatus(c->answer);

	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static const char *
error_of(const Console *c)
{
	const char *message = PQresultErrorField(c->answer, PG_DIAG_MESSAGE_PRIMARY);

	return message != NULL ? text_of("%s", message) : "no answer";
}

/* Ask one console, and wait; how many rows the answer has, which stays there. */
static int
ask_and_wait(Console *c, const char *command)
{
	ask_console(c, command);
	if (c->pending && next_answer(c, now_ms() + (paused != NULL ? PAUSED_LIMIT_MS : CONSOLE_LIMIT_MS)) == NULL)
		give_up(c);
	return has_obeyed(c) ? PQntuples(c->answer) : 0;
}

/* A field of an answer by its name, since versions differ; "" for none. */
static const char *
answer_field(const Console *c, int row, const char *name)
{
	int			column = PQfnumber(c->answer, name);

	return row < 0 || column < 0 ? "" : PQgetvalue(c->answer, row, column);
}

/* The first row of an answer that has a value; -1: none, or no answer. */
static int
find_row(const Console *c, const char *column, const char *value)
{
	for (int row = 0; row < PQntuples(c->answer); row++)
		if (strcmp(answer_field(c, row, column), value) == 0)
			return row;
	return -1;
}

/* What SHOW CONFIG, which was asked last, says of a setting; "" for nothing. */
static const char *
config_of(const Console *c, const char *key)
{
	return text_of("%s", answer_field(c, find_row(c, "key", key), "value"));
}

/* The number that SHOW VERSION has: 1018000 for 1.18. */
static int
version_of(Console *c, const char **text)
{
	int			v[3] = {0};

	*text = ask_and_wait(c, "SHOW VERSION") > 0 ? text_of("%s", PQgetvalue(c->answer, 0, 0)) : error_of(c);
	(void) sscanf(*text, "PgBouncer %d.%d.%d", &v[0], &v[1], &v[2]);
	return (v[0] * 1000 + v[1]) * 1000 + v[2];
}

/*
 * Does each RELOAD close the connections of all pools?  Before 1.24 it did with TLS
 * to the servers.  SHOW CONFIG is asked last.
 */
static bool
reload_closes_all(Console *c, int version)
{
	return ask_and_wait(c, "SHOW CONFIG") > 0 && version < 1024000 &&
		config_of(c, "server_tls_sslmode")[0] != '\0' && strcmp(config_of(c, "server_tls_sslmode"), "disable") != 0;
}

/* -------- pools -------- */

static int
compare_pools(const void *a, const void *b)
{
	const Shard *x = *(Shard *const *) a;
	const Shard *y = *(Shard *const *) b;
	int			order = x->tie != y->tie ? x->tie - y->tie : strcmp(x->pool, y->pool);

	return order != 0 ? order : x->number - y->number;
}

/* The same shards, those that go together beside each other. */
const Move *
by_pools(const Move *move)
{
	Move	   *sorted;

	if (!has_poolers(move) && (move->nshards == 0 || move->shards[0]->tie == 0))
		return move;
	sorted = select_range(move, 0, move->nshards);
	sorted->shards = pg_malloc(sizeof(Shard *) * Max(move->nshards, 1));
	memcpy(sorted->shards, move->shards, sizeof(Shard *) * move->nshards);
	qsort(sorted->shards, sorted->nshards, sizeof(Shard *), compare_pools);
	return sorted;
}

/* Is the shard at this place the first one of its pool? */
static bool
is_first_of_pool(const Move *move, int i)
{
	return i == 0 || strcmp(move->shards[i]->pool, move->shards[i - 1]->pool) != 0;
}

static bool
is_tied(const Move *move, Shard *shard, const void *tie)
{
	return shard->tie == *(const int *) tie;
}

/*
 * Find out which shards go together: those of a pool, those of which one needs the other,
 * and all that go with one of these.  What all others need, as a function, ties no more than
 * a batch has; foreign keys always, or only_keys.
 */
void
tie_shards(const Move *move, bool only_keys)
{
	PGresult   *ties = move->nshards < 2 ? NULL : only_keys ? query(move->source.conn, KEYS_SQL, shard_list(move)) :
	query(move->source.conn, TIES_SQL, shard_list(move));
	const Move *sorted;

	for (int i = 0; i < move->nshards; i++)
		move->shards[i]->tie = 0;
	sorted = by_pools(move);
	for (int i = 0; i < move->nshards; i++)
		sorted->shards[i]->tie = has_poolers(move) && !is_first_of_pool(sorted, i) ? sorted->shards[i - 1]->tie : sorted->shards[i]->number;
	for (int row = 0; row < PQntuples(ties); row++)
	{
		const Shard *a = find_shard(move, atoi(PQgetvalue(ties, row, 0)));
		const Shard *b = find_shard(move, atoi(PQgetvalue(ties, row, 1)));
		int			low = a == NULL || b == NULL ? 0 : Min(a->tie, b->tie);
		int			high = a == NULL || b == NULL ? 0 : Max(a->tie, b->tie);
		const Move *joined = select_shards(move, is_tied, &high);

		if (low != high && !only_keys && *PQgetvalue(ties, row, 2) == 'f' && joined->nshards + select_shards(move, is_tied, &low)->nshards > BATCH_MAX)
			continue;
		for (int i = 0; i < joined->nshards; i++)
			joined->shards[i]->tie = low;
	}
	PQclear(ties);
}

/* So many shards from there on, or some more, so that none is torn from those that it goes with. */
int
whole_pools(const Move *move, int first, int count)
{
	for (int i = first + count; i < move->nshards; i++, count++)
		if ((move->shards[i]->tie == 0 || move->shards[i]->tie != move->shards[i - 1]->tie) &&
			(!has_poolers(move) || is_first_of_pool(move, i)))
			break;
	return count;
}

/* Where one shard has failed, those that go with it do, too. */
void
fail_whole_pools(const Move *move)
{
	int			count;

	move = by_pools(move);
	for (int first = 0; first < move->nshards; first += count)
	{
		const Move *pool = select_range(move, first, count = whole_pools(move, first, 1));
		int			failed = select_shards(pool, has_failed, NULL)->nshards;

		if (failed == 0 || failed == count)
			continue;
		if (has_poolers(move))
			report_error("pool \"%s\" cannot be moved as a whole", pool->shards[0]->pool);
		else
			report_error("%s go together, by what one has of another, and cannot all be moved", pool->title);
		for (int i = 0; i < count; i++)
			pool->shards[i]->failed = true;
	}
}

/* -------- the pause -------- */

/* A pause that is broken off in the middle would last: Ctrl-C waits until it is over. */
static void
hold_signals(bool hold)
{
	sigset_t	signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &signals, NULL);
}

/* Run --pooler-command with the file's path; it ends, or is ended. */
static bool
run_pooler_command(const MoveOptions *options)
{
	int64		until = now_ms() + COMMAND_LIMIT_S * 1000;
	int			status = -1;
	pid_t		ended = -1;
	pid_t		pid;

	if (options->pooler_command == NULL)
		return true;
	if ((pid = fork()) == 0)
	{
		hold_signals(false);
		(void) setpgid(0, 0);
		alarm(COMMAND_LIMIT_S);
		execl("/bin/sh", "sh", "-c", text_of("%s \"$1\"", options->pooler_command), "sh", options->pooler_file, NULL);
		_exit(127);
	}
	while (pid > 0 && (ended = waitpid(pid, &status, WNOHANG)) == 0 && now_ms() < until)
		pg_usleep(1000);
	if (ended == pid && status == 0)
		return true;

	/* With what it has begun, and if it was stopped, for asking a terminal. */
	if (pid > 0 && kill(-pid, SIGKILL) == 0 && ended == 0)
		(void) waitpid(pid, &status, 0);
	report_warning("--pooler-command failed, or took longer than %d s", COMMAND_LIMIT_S);
	return false;
}

/* Does a pool lead there, by SHOW DATABASES, which was asked last? */
static bool
is_led(const Console *c, const char *pool, const char *home)
{
	int			row = find_row(c, "name", pool);
	const char *values[] = {answer_field(c, row, "host"), answer_field(c, row, "port"), answer_field(c, row, "database")};
	const char *wanted = known_entry(home, NULL);

	return row >= 0 && wanted != NULL && strcmp(entry_of(values), wanted) == 0;
}

/* The first of the move's pools that a pooler does not lead there; NULL: it leads all.  Each may have another entry, after the file's. */
static const char *
pool_astray(Console *c, const Move *move, const char *home)
{
	(void) ask_and_wait(c, "SHOW DATABASES");
	for (int i = 0; i < move->nshards; i++)
		if (is_first_of_pool(move, i) && !is_led(c, move->shards[i]->pool, home))
			return move->shards[i]->pool;
	return NULL;
}

/* Is a pool paused, by SHOW DATABASES? */
static bool
is_paused(const Console *c, const char *pool)
{
	return atoi(answer_field(c, find_row(c, "name", pool), "paused")) != 0;
}

/* ... but by no move of ours? */
static bool
is_paused_by_others(const Console *c, Shard *shard, const Side *from)
{
	return journal_of(shard, from)->poolers == NULL && is_paused(c, shard->pool);
}

/* Does a pool have a login under way at the server, as was seen last? */
static bool
is_logging_in(const Console *c, const char *pool)
{
	return strstr(c->logins, text_of("\n%s\n", pool)) != NULL;
}

/* Is a pool in session mode, for one of its users, by SHOW POOLS; or for all that have a server now? */
static bool
is_in_session_mode(const Console *c, const char *pool, bool all)
{
	bool		is_one = false;

	for (int row = 0; row < PQntuples(c->answer); row++)
		if (strcmp(answer_field(c, row, "database"), pool) == 0)
		{
			if (strcmp(answer_field(c, row, "pool_mode"), "session") == 0)
				is_one = true;
			else if (all && atoi(answer_field(c, row, "sv_active")) > 0)
				return false;
		}
	return is_one;
}

/* Remember the pools with logins under way, by SHOW POOLS. */
static void
note_logins(Console *c)
{
	c->looks = false;
	c->logins = "\n";
	c->logins_at = now_ms();
	for (int row = 0; row < PQntuples(c->answer); row++)
		if (atoi(answer_field(c, row, "sv_login")) > 0)
			c->logins = text_of("%s%s\n", c->logins, answer_field(c, row, "database"));
}

/*
 * Ask for this pool.  Before its PAUSE, look for logins: what was seen before that of
 * another, which may have waited for a transaction, is no longer so.
 */
static void
ask_for_pool(Console *c, const Move *move, const char *verb)
{
	const char *pool = move->shards[c->asked]->pool;

	c->looks = now_ms() < login_patience && (now_ms() > c->logins_at + 1 || is_logging_in(c, pool));
	ask_console(c, c->looks ? "SHOW POOLS" : text_of("%s \"%s\"", verb, pool));
}

/* Ask for the next pool, if there is one, after what comes before. */
static void
ask_next(Console *c, const Move *move, const char *verb)
{
	if (*c->before == no_retry && c->no_retry == NULL)
		c->before++;
	if (*c->before != NULL)
	{
		ask_console(c, *c->before == no_retry ? c->no_retry : *c->before);
		c->before++;
		return;
	}
	do
		c->asked++;
	while (c->asked < move->nshards && !is_first_of_pool(move, c->asked));
	if (c->asked < move->nshards)
		ask_for_pool(c, move, verb);
}

/* Ask all for what comes before the first pool. */
static void
ask_first(const Move *move, const char *verb, const char *const *before)
{
	for (Console *c = consoles; c < consoles + nconsoles; c++)
	{
		if (c->pending)
			give_up(c);
		c->asked = -1;
		c->looks = false;
		c->logins = "";
		c->logins_at = 0;
		c->before = before;
		ask_next(c, move, verb);
	}
}

/*
 * How many shards to hand over in the first decision, of a batch: one, or all, so that
 * all pools' connections are made anew only once.
 */
int
first_group(const Move *move)
{
	bool		all = false;

	if (has_poolers(move) && open_consoles() == NULL)
		for (Console *c = consoles; c < consoles + nconsoles; c++)
		{
			const char *text;

			all |= reload_closes_all(c, version_of(c, &text));
		}
	return all ? move->nshards : 1;
}

/* Of a restore, which has no row in the journal, those of copies have it.  NULL: to forget them. */
static bool
note_poolers(const Move *move, const Side *from, const char *names)
{
	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], from)->poolers = names == NULL ? NULL : pg_strdup(names);
	return try_run(from->conn, "UPDATE snowid.%s SET details = details - 'poolers' || jsonb_strip_nulls(jsonb_build_object('poolers', %s::text)) WHERE shard IN (%s)",
				   is_any_known(move, from) ? "moves" : "copies", literal(from->conn, names), shard_list(move));
}

#define FORGET_POOLERS	"if one is gone for good, type at %s: UPDATE snowid.moves SET details = details - 'poolers' WHERE shard IN (%s);"

static bool
is_with_poolers(const Move *move, Shard *shard, const void *from)
{
	return journal_of(shard, from)->poolers != NULL;
}

static const char *
console_names(void)
{
	const char *names = "";

	for (Console *c = consoles; c < consoles + nconsoles; c++)
		names = text_of("%s%s\n", names, c->name);
	return names;
}

/*
 * Find out what server_login_retry is, or was: for a pause it is ten times the seconds, and 7, in
 * microseconds; or a thousand times, and 8, if they are no whole number.
 */
static bool
read_login_retry(Console *c)
{
	double		seconds;
	int			us;

	if (ask_and_wait(c, "SHOW CONFIG") == 0)
		return false;
	seconds = atof(config_of(c, "server_login_retry"));
	us = seconds < 1 ? (int) (seconds * 1000000 + 0.5) : 0;
	if (us % 10 == 7)
		seconds = us / 10;
	else if (us % 10 == 8)
		seconds = us / 10 / 100.0;
	us = seconds == (int) seconds ? 10 * (int) seconds + 7 : 10 * (int) (seconds * 100 + 0.5) + 8;
	c->login_retry = text_of("SET server_login_retry = '%g'", seconds);

	/* It cuts off what is less than a microsecond. */
	c->no_retry = text_of("SET server_login_retry = '%d.%06d5'", us / 1000000, us % 1000000);
	return true;
}

/* What a move with poolers needs before writers wait, at each attempt; NULL, or why it has it not. */
const char *
prepare_pools(const Move *move, const Side *from, const Side *to)
{
	const char *reason;
	const Move *noted;
	bool		is_settled;
	int			n;

	if (!has_poolers(move))
		return NULL;
	n = nconsoles;
	if ((reason = open_consoles()) != NULL)
		return text_of("the pooler at %s", reason);

	/*
	 * One that the command does not name may have been paused by an earlier
	 * one.
	 */
	noted = select_shards(move, is_with_poolers, from);
	for (int i = 0; i < noted->nshards; i++)
		add_journaled(journal_of(noted->shards[i], from));
	is_settled = nconsoles == n || resume_pools(noted, from);
	nconsoles = n;
	if (!is_settled)
		return text_of("the pooler of an earlier command may have paused pools; name it, too; " FORGET_POOLERS, from->home, shard_list(noted));
	if ((reason = why_not_written(move, to, false)) != NULL)
		return reason;
	for (Console *c = consoles; c < consoles + nconsoles; c++)
	{
		if (!read_login_retry(c))
			return text_of("the pooler at %s gives no answer", c->name);

		/* Our RESUME would end their pause. */
		if (ask_and_wait(c, "SHOW DATABASES") > 0)
			for (int i = 0; i < move->nshards; i++)
				if (is_paused_by_others(c, move->shards[i], from))
					return text_of("somebody has paused pool \"%s\" at the pooler at %s; " RESUME_IT " \"%s\"", move->shards[i]->pool, c->name, move->shards[i]->pool);
	}
	if (!note_poolers(move, from, console_names()))
		fail_with(from->conn);
	return NULL;
}

/* Who keeps a pool's server, so that PAUSE gets no answer: for a message; or that other text. */
static const char *
holder_of(Console *c, const Side *side, const char *pool, const char *other)
{
	const char *pid = "0";
	const char *link = "";
	const char *does;
	int			row;

	for (row = ask_and_wait(c, "SHOW SERVERS") - 1; row >= 0; row--)
		if (strcmp(answer_field(c, row, "database"), pool) == 0 && answer_field(c, row, "link")[0] != '\0')
		{
			link = text_of("%s", answer_field(c, row, "link"));
			pid = text_of("%d", atoi(answer_field(c, row, "remote_pid")));
		}
	(void) ask_and_wait(c, "SHOW CLIENTS");
	row = find_row(c, "ptr", link);
	does = query_text(side->aux, "SELECT format(', process %%s of %%s since %%s: %%s', pid, usename, date_trunc('second', coalesce(xact_start, query_start)), "
					  "left(translate(query, E'\\n\\t', '  '), 100)) FROM pg_stat_activity WHERE pid = %s", pid);
	return row < 0 ? other : text_of("client %s:%s %s%s", answer_field(c, row, "addr"), answer_field(c, row, "port"),
									 answer_field(c, row, "application_name"), does != NULL ? does : "");
}

/* Is that row of SHOW POOLS one of the move's, with clients that wait? */
static bool
has_waiting(const Console *c, int row, const Move *move)
{
	int			i = 0;

	while (i < move->nshards && strcmp(answer_field(c, row, "database"), move->shards[i]->pool) != 0)
		i++;
	return i < move->nshards && atoi(answer_field(c, row, "cl_waiting")) > 0;
}

/* Is a client of the move's pools waiting there, by SHOW POOLS?  Its longest wait, in ms; -1: none. */
static int
longest_wait(const Console *c, const Move *move)
{
	int			longest = -1;

	for (int row = 0; row < PQntuples(c->answer); row++)
		if (has_waiting(c, row, move))
			longest = Max(longest, atoi(answer_field(c, row, "maxwait")) * 1000 + atoi(answer_field(c, row, "maxwait_us")) / 1000);
	return longest;
}

/* Put server_login_retry back, once the waiting clients have been let in; false if one cannot. */
static bool
put_login_retry_back(const Move *move)
{
	bool		all = true;

	for (Console *c = consoles; c < consoles + nconsoles; c++)
	{
		int64		until = now_ms() + LOGIN_LIMIT_MS;

		while (c->login_retry != NULL && ask_and_wait(c, "SHOW POOLS") > 0 && longest_wait(c, move) >= 0 && now_ms() < until)
			pg_usleep(LOGIN_POLL_MS * 1000);
		for (int attempt = 0; attempt < 2 && c->login_retry != NULL; attempt++)
		{
			(void) ask_and_wait(c, c->login_retry);
			if (has_obeyed(c))
				c->login_retry = NULL;
			else
				(void) open_consoles();
		}
		if (c->login_retry != NULL)
		{
			all = false;
			report_warning("the pooler at %s has another server_login_retry than it had", c->name);
			report_hint("Type there: %s", c->login_retry);
		}
	}
	return all;
}

/*
 * All poolers at once let the clients go on: where they were, or at home.  What one
 * does not pause is no error.  False if one does not, after saying so.
 */
static bool
resume_all(const Move *move, const char *home)
{
	Console    *c;
	int64		until;
	bool		all = true;

	paused = NULL;
	login_patience = 0;
	for (c = consoles; c < consoles + nconsoles; c++)
		if (c->login_retry == NULL)
			(void) read_login_retry(c);
	until = now_ms() + CONSOLE_LIMIT_MS;
	ask_first(move, "RESUME", home != NULL ? before_route : before_resume);
	while ((c = next_answer(NULL, until)) != NULL)
	{
		move->tally->client_wait_ms = Max(move->tally->client_wait_ms, longest_wait(c, move));
		ask_next(c, move, "RESUME");
	}
	move->tally->resumed_at = now_ms();
	for (c = consoles; c < consoles + nconsoles; c++)
	{
		bool		is_lost = c->asked < move->nshards || PQstatus(c->conn) != CONNECTION_OK;
		const char *astray = home != NULL && !is_lost ? pool_astray(c, move, home) : NULL;

		if (!is_lost && astray == NULL)
			continue;
		all = false;
		if (is_lost)
		{
			const char *pools = home != NULL ? " RELOAD;" : "";

			for (int i = 0; i < move->nshards; i++)
				if (is_first_of_pool(move, i))
					pools = text_of("%s RESUME \"%s\";", pools, move->shards[i]->pool);
			report_warning(home == NULL ? "the pooler at %s gives no answer: its pools may be paused" :
						   "the pooler at %s gives no answer: its pools may be paused, and not lead to %s", c->name, home);
			if (c->conn == NULL && c->why != NULL)
				report_detail("%s", c->why);
			report_hint("Type the command with its --pooler, and password if it takes one; or there:%s%s", pools,
						c->login_retry != NULL ? "" : " SET server_login_retry = '15'; or what its file has.");
		}
		else
		{
			report_warning("the pooler at %s does not lead %s to %s", c->name, move->title, home);
			report_hint("Its clients get SN001. When it can read the new file, and has no other entry of pool \"%s\" after that, type the same command again.",
						astray);
		}
	}
	all &= put_login_retry_back(move);
	hold_signals(false);
	return all;
}

/* If the program ends in a pause that is not decided, it lets the clients go on. */
static void
resume_at_exit(void)
{
	if (paused != NULL)
		(void) resume_all(paused, NULL);
}

/* Now it is decided, or may be: only the journal says where the clients may go on. */
void
keep_paused(void)
{
	paused = NULL;
}

/*
 * Let the writers wait at the poolers; NULL, or why not all do by then.  Clients
 * in session mode that keep their sessions are no reason: they meet the fence.
 */
const char *
pause_pools(const Move *move, const Side *from, int64 until)
{
	static bool at_exit = false;
	Console    *c;

	if (!has_poolers(move))
		return NULL;
	if (!at_exit)
		at_exit = atexit(resume_at_exit) == 0;
	hold_signals(true);
	paused = move = by_pools(move);
	login_patience = (now_ms() + until) / 2;
	ask_first(move, "PAUSE", before_pause);
	for (;;)
	{
		const char *pool;

		while ((c = next_answer(NULL, until)) != NULL)
		{
			if (!has_obeyed(c) && c->asked >= 0)
				return text_of("the pooler at %s does not pause pool \"%s\": %s%s", c->name, move->shards[c->asked]->pool, error_of(c),
							   strstr(error_of(c), "already") == NULL ? "" : "; somebody has paused it, or told it to end: " RESUME_IT "; or start it again");
			if (c->looks)
			{
				note_logins(c);
				if (is_logging_in(c, move->shards[c->asked]->pool))
					pg_usleep(LOGIN_POLL_MS * 1000);
				ask_for_pool(c, move, "PAUSE");
			}
			else
				ask_next(c, move, "PAUSE");
		}
		for (c = consoles; c < consoles + nconsoles && c->asked >= move->nshards; c++)
			;
		if (c == consoles + nconsoles)
			return NULL;
		pool = move->shards[Max(c->asked, 0)]->pool;
		give_up(c);
		if (c->asked < 0 || c->conn == NULL || ask_and_wait(c, "SHOW POOLS") == 0)
			return text_of("the pooler at %s gives no answer", c->name);
		if (!is_in_session_mode(c, pool, true))
			return text_of("pool \"%s\" at the pooler at %s is held by %s", pool, c->name, holder_of(c, from, pool, "a client"));
		report_verbose("pool \"%s\": clients keep their sessions at the pooler at %s", pool, c->name);
		c->spare = connect_briefly(c->conninfo, NULL);
		ask_next(c, move, "PAUSE");
		until = Max(until, now_ms() + PAUSED_LIMIT_MS);
	}
}

/* Before the decision: are they paused still?  NULL, or which pool was resumed by somebody. */
const char *
check_paused(void)
{
	const Move *move = paused;

	for (Console *c = consoles; move != NULL && c < consoles + nconsoles; c++)
	{
		if (ask_and_wait(c, "SHOW DATABASES") == 0)
			return text_of("the pooler at %s gives no answer", c->name);
		for (int i = 0; i < move->nshards; i++)
			if (is_first_of_pool(move, i) && !is_paused(c, move->shards[i]->pool))
				return text_of("somebody resumed pool \"%s\" at the pooler at %s", move->shards[i]->pool, c->name);
	}
	return NULL;
}

/* Let the writers go on where the shards were, if they were paused.  True if all were, and do. */
bool
resume_pools(const Move *move, const Side *from)
{
	int			n = has_poolers(move) ? nconsoles : 0;

	move = select_shards(move, is_with_poolers, from);
	for (int i = 0; i < move->nshards; i++)
		add_journaled(journal_of(move->shards[i], from));
	if (nconsoles > n)
		(void) open_consoles();
	return move->nshards > 0 && resume_all(by_pools(move), NULL) && note_poolers(move, from, NULL);
}

/* Is no pool left, by the journal, which alone knows and is to be dropped?  False after saying what to type. */
bool
are_settled(const Move *move, const Side *from)
{
	move = select_shards(move, is_with_poolers, from);
	return move->nshards == 0 ||
		refuse(false, text_of("Type the same command with the --pooler of each, and its password; " FORGET_POOLERS " and then the same command.",
							  from->home, shard_list(move)),
			   "the clients of %s may be paused still at a pooler, or led elsewhere", move->title);
}

/* The same, once they were told to go on where the shards were. */
bool
are_resumed(const Move *move, const Side *from)
{
	(void) resume_pools(move, from);
	return are_settled(move, from);
}

/*
 * Let the writers go on where the shards are open now.  Who still has the old
 * entries is told, and stays in the journal.
 */
void
route_pools(const Move *move, const Side *from, const Side *to)
{
	const char *reason;
	bool		done;

	if (!has_poolers(move))
		return;
	move = by_pools(move);
	(void) open_consoles();
	if ((reason = why_not_written(move, to, true)) != NULL)
		report_warning("%s", reason);
	done = reason == NULL && run_pooler_command(move->options);
	if (resume_all(move, to->home) && done)
		(void) note_poolers(move, from, NULL);
	else
		move->tally->unrouted = true;
}

/* The same of shards that were moved without their poolers. */
void
route_late(const Move *move, const Side *from, const Side *to)
{
	bool		are_led = true;

	if (!has_poolers(move) || select_shards(move, is_with_poolers, from)->nshards > 0)
		return;
	(void) open_consoles();
	for (Console *c = consoles; c < consoles + nconsoles; c++)
		are_led &= pool_astray(c, by_pools(move), to->home) == NULL;
	if (!are_led && note_poolers(move, from, console_names()))
		route_pools(move, from, to);
}

/*
 * Shards whose journal names poolers: not decided; or open at their new home.  What
 * a standby has of its source's journal is no journal of its own.
 */
static bool
is_left_behind(const Move *move, Shard *shard, const void *from)
{
	const Journal *j = journal_of(shard, from);

	return j->poolers != NULL && j->at.step != FENCED && j->at.step != MOVED &&
		(((const Side *) from)->place == 0 || j->begun_as == TARGET);
}

static bool
is_left_open(const Move *move, Shard *shard, const void *from)
{
	const Journal *to = &shard->journals[1 - ((const Side *) from)->place];

	return journal_of(shard, from)->poolers != NULL && !is_left_behind(move, shard, from) &&
		row_is_at(to, OPEN);
}

/*
 * End what a program that was killed has left: the pools of shards that were not
 * decided go on where they were, and those of shards that are open are led there.  A
 * split that goes on does that itself, once its target takes writes.
 */
void
settle_pools(const Move *set, bool is_split)
{
	const Side *sides[] = {&set->source, &set->target};
	int			named = has_poolers(set) ? nconsoles : 0;
	bool		are_left = false;

	for (int i = 0; i < 2; i++)
	{
		const Side *from = sides[i];
		const Move *behind;
		const Move *open;

		if (from->conn == NULL)
			continue;
		for (int n = 0; n < set->nshards; n++)
			if (journal_of(set->shards[n], from)->poolers != NULL)
				add_journaled(journal_of(set->shards[n], from));
		behind = select_shards(set, is_left_behind, from);
		open = select_shards(set, is_left_open, from);
		are_left |= behind->nshards + open->nshards > 0;
		if (behind->nshards > 0)
		{
			(void) open_consoles();
			if (resume_pools(behind, from))
				report_info("%s: clients that were paused at the poolers go on", behind->title);
		}
		if (open->nshards > 0 && (!is_split || is_at(open, from, MOVED)))
			route_pools(open, from, sides[1 - i]);
	}

	/* One that the command does not name need not be there. */
	if (named > 0 || !are_left)
		nconsoles = named;
}

/* -------- the checks -------- */

/* As deep as PgBouncer goes. */
#define MAX_INCLUDES	10

#define GIVE_EACH	"Give each a unix_socket_dir of its own, and name each of these by --pooler."

/* A configuration, as a pooler reads it. */
typedef struct Reading
{
	const Check *check;
	const Move *move;
	struct stat ours;
	bool		is_included;	/* ours has been read */
	bool		in_databases;	/* the section, which an include does not end */
	const char *unread;			/* what cannot be read here, as a path that
								 * begins where the pooler was started */
} Reading;

/* Of two entries of a pool the later counts, and that is not ours. */
static void
check_other_entry(const Reading *r, const char *conffile, const char *pool)
{
	for (int i = 0; i < r->move->nshards; i++)
		if (is_first_of_pool(r->move, i) && strcmp(r->move->shards[i]->pool, pool) == 0)
			found_of(r->check, r->move->shards[i], FOUND_FAILED, "Remove that line there, and type at the console: RELOAD",
					 "%s has another entry of pool \"%s\", after the %%include", conffile, pool);
}

/* Read it, and what it includes. */
static void
read_configuration(Reading *r, const char *conffile, int depth)
{
	FILE	   *file = depth > 0 ? fopen(conffile, "r") : NULL;
	char		line[4096];
	char		name[1001];
	char		sign[2];
	const char *rest;
	struct stat theirs;

	if (file == NULL)
	{
		r->unread = text_of("%s", conffile);
		return;
	}
	while (fgets(line, sizeof(line), file) != NULL)
	{
		for (int end = strlen(line); end > 0 && isspace((unsigned char) line[end - 1]); end--)
			line[end - 1] = '\0';
		if (sscanf(line, " %%include %1000[^\n]", name) == 1)
		{
			if (stat(name, &theirs) != 0 || r->ours.st_dev != theirs.st_dev || r->ours.st_ino != theirs.st_ino)
				read_configuration(r, name, depth - 1);
			else
				r->is_included = r->in_databases = true;
			continue;
		}
		if (sscanf(line, " [%1000[^]]", name) == 1)
			r->in_databases = strcmp(name, "databases") == 0;

		/* An entry may stand beside its section. */
		rest = strchr(line, ']') != NULL && line[strspn(line, " \t")] == '[' ? strchr(line, ']') + 1 : line;
		if (r->is_included && r->in_databases &&
			(sscanf(rest, " \"%1000[^\"]\" %1[=]", name, sign) == 2 || sscanf(rest, " %1000[0-9A-Za-z_.-] %1[=]", name, sign) == 2))
			check_other_entry(r, conffile, name);
	}
	fclose(file);
}

static void
check_include(const Check *check, const Console *c, const char *conffile, const Move *move)
{
	const char *path = move->options->pooler_file;
	Reading		r = {.check = check,.move = move};

	(void) stat(path, &r.ours);
	read_configuration(&r, conffile, MAX_INCLUDES);
	if (r.is_included)
		return;
	if (r.unread != NULL)
		found_fmt(check, FOUND_WARNING, "Look there for the line %include.", "%s reads %s, which cannot be read here", c->name, r.unread);
	else if (move->options->pooler_command == NULL)
		found_fmt(check, FOUND_FAILED, text_of("Add the line: %%include %s", path), "%s reads %s, which does not include %s", c->name, conffile, path);
}

/* A process without console is told of once, whoever knows of it. */
static void
tell_unnamed(const Check *check, const char **told, const char *what, const char *to_do)
{
	if (strstr(*told, what) != NULL)
		return;
	*told = text_of("%s%s\n", *told, what);
	found(check, FOUND_FAILED, text_of("%s, and is not named: its clients would write on", what), to_do);
}

/* Is that one of the clients that SHOW CLIENTS, which was asked last, has? */
static bool
is_client(const Console *c, PGconn *conn)
{
	struct sockaddr_in6 address = {0};
	socklen_t	length = sizeof(address);

	/* The port is where it is in sockaddr_in, too. */
	return getsockname(PQsocket(conn), (struct sockaddr *) &address, &length) == 0 &&
		find_row(c, "port", text_of("%d", ntohs(address.sin6_port))) >= 0;
}

/*
 * Has each process that shares the port a console?  Connect there, and look whether
 * one of the consoles has us among its clients; who has not says where its own is.
 */
static void
check_port(const Check *check, const Console *c, const char **told)
{
	const char *host = config_of(c, "listen_addr");
	const char *port = config_of(c, "listen_port");
	int			enough = PORT_PROBES * (nconsoles + 1);
	Console    *probes = pg_malloc0(sizeof(Console) * enough);
	int			n = 0;
	bool		is_seen = host[0] != '\0';

	while (n < enough && is_seen)
		is_seen = (probes[n++].conn = connect_briefly_to(c->conninfo, NULL, strcmp(host, "*") == 0 ? "localhost" : host, port)) != NULL;
	for (Console *named = consoles; named < consoles + nconsoles && is_seen; named++)
	{
		is_seen = ask_and_wait(named, "SHOW CLIENTS") > 0;
		for (int i = 0; i < n; i++)
			probes[i].asked |= is_client(named, probes[i].conn);
	}
	for (int i = 0; i < n; i++)
	{
		Console    *probe = &probes[i];
		const char *dir;

		if (is_seen && !probe->asked && (is_seen = ask_and_wait(probe, "SHOW CONFIG") > 0))
		{
			dir = config_of(probe, "unix_socket_dir");
			tell_unnamed(check, told, text_of("a process with unix_socket_dir = %s shares port %s (so_reuseport)", dir, port), dir[0] == '\0' ? GIVE_EACH :
						 text_of("Add: --pooler 'host=%s port=%s user=%s dbname=%s'", dir, port, PQuser(probe->conn), PQdb(probe->conn)));
		}
		PQclear(probe->answer);
		PQfinish(probe->conn);
	}
	free(probes);
	if (!is_seen)
		found_fmt(check, FOUND_WARNING, "Look whether each is named by --pooler, or let this role log in at the port, too.",
				  "how many processes share port %s (so_reuseport) cannot be seen by %s", port, c->name);
}

/*
 * Has each process a console?  PAUSE reaches one; those that share its port, or are
 * its peers, let their clients write on.
 */
static void
check_processes(const Check *check, Console *c, const char **told)
{
	const char *host;
	Console    *named;

	for (int row = ask_and_wait(c, "SHOW PEERS") - 1; row >= 0; row--)
	{
		const char *id = answer_field(c, row, "peer_id");

		for (named = consoles; named < consoles + nconsoles && strcmp(named->peer_id, id) != 0; named++)
			;
		if (named == consoles + nconsoles)
			tell_unnamed(check, told, text_of("peer %s, host=%s port=%s, gets clients", id, answer_field(c, row, "host"), answer_field(c, row, "port")),
						 "Name its console by --pooler, too.");
	}
	if (ask_and_wait(c, "SHOW CONFIG") == 0 || atoi(config_of(c, "so_reuseport")) == 0)
		return;
	host = PQhost(c->conn);
	for (named = consoles; strcmp(named->address, c->address) != 0; named++)
		;
	if (host == NULL || host[0] != '/')
		found_fmt(check, FOUND_FAILED, GIVE_EACH, "%s leads to any of the processes on its port (so_reuseport)", c->name);
	else if (named == c)
		check_port(check, c, told);
}

/* Its version, its configuration and what it lets us do; the mode of pools that have none of their own.  NULL: it is no console. */
static const char *
check_config(const Check *check, Console *c, const Move *move)
{
	const MoveOptions *options = move->options;
	const char *version;
	const char *limit;
	const char *mode;
	int			number = version_of(c, &version);

	if (number < 1018000)
		found_fmt(check, FOUND_FAILED, "It takes the console of PgBouncer 1.18 or later, whose dbname is pgbouncer.", "%s says: %s", c->name, version);
	if (number == 0)
		return NULL;
	if (reload_closes_all(c, number))
		found_fmt(check, FOUND_WARNING, "So each batch is handed over as a whole, with one RELOAD; or take PgBouncer 1.24 or later.",
				  "%s has TLS to the servers: before 1.24, RELOAD closes the connections of all pools", c->name);
	c->peer_id = config_of(c, "peer_id");
	c->address = text_of("%s %s", config_of(c, "listen_addr"), config_of(c, "listen_port"));
	if (!has_obeyed(c))
		return "";
	check_include(check, c, config_of(c, "conffile"), move);
	limit = config_of(c, "query_wait_timeout");
	if (limit[0] != '\0' && atof(limit) * 1000 <= options->pause_limit_ms)
		found_fmt(check, atof(limit) == 0 ? FOUND_WARNING : FOUND_FAILED, "Set it well above --pause-limit, to 120 s, say.",
				  atof(limit) == 0 ? "%s has query_wait_timeout = %s: should this program be killed, nothing would end a pause"
				  : "%s ends clients that wait for %s s (query_wait_timeout)", c->name, limit);
	if (number < 1025001 && strstr(config_of(c, "track_extra_parameters"), "search_path") != NULL)
		found_fmt(check, FOUND_FAILED, "Take PgBouncer 1.25.1 or later.",
				  "%s has search_path in track_extra_parameters: clients can run SQL before they log in (CVE-2025-12819)", c->name);
	mode = config_of(c, "pool_mode");

	/* One of its stats_users sees as much, but may set nothing. */
	if (limit[0] != '\0')
		(void) ask_and_wait(c, text_of("SET query_wait_timeout = '%s'", limit));
	if (!has_obeyed(c))
		found_fmt(check, FOUND_FAILED, "Name a role of its admin_users.", "%s: %s", c->name, error_of(c));
	return mode;
}

/* Does it have the set's pools, as the registry has them, in which mode, and paused by nobody? */
static void
check_entries(const Check *check, Console *c, const Move *move, const char *default_mode)
{
	int			connections = 0;
	int			allowed = atoi(query_text(move->target.conn, "SHOW max_connections"));

	/* Older ones tell of a pause of all only when they get one more. */
	if (ask_and_wait(c, "SHOW STATE") > 0 && strcmp(answer_field(c, find_row(c, "key", "active"), "value"), "no") == 0)
		found_fmt(check, FOUND_FAILED, "If nobody needs that any more, type there: RESUME; or start it again.",
				  "somebody has paused %s, or told it to end", c->name);
	for (int i = 0; i < move->nshards; i++)
	{
		const char *pool = move->shards[i]->pool;
		const char *mode;
		int			row;
		int			limit;
		int			size;

		if (!is_first_of_pool(move, i))
			continue;
		(void) ask_and_wait(c, "SHOW DATABASES");
		if (!is_led(c, pool, move->source.home))
		{
			found_of(check, move->shards[i], FOUND_FAILED, "It has not read the file, or that was not written from where --from leads. Type snowid-move route --from CONNSTR, and RELOAD.",
					 "%s does not lead pool \"%s\" to %s", c->name, pool, move->source.home);
			continue;
		}
		if (is_paused_by_others(c, move->shards[i], &move->source))
			found_of(check, move->shards[i], FOUND_FAILED, text_of("If nobody needs that any more, type there: RESUME \"%s\"", pool),
					 "somebody has paused pool \"%s\" at %s", pool, c->name);
		row = find_row(c, "name", pool);
		limit = atoi(answer_field(c, row, "max_connections"));
		size = atoi(answer_field(c, row, "pool_size"));
		connections += limit > 0 ? Min(limit, size) : size;
		mode = answer_field(c, row, "pool_mode")[0] != '\0' ? answer_field(c, row, "pool_mode") : default_mode;
		if (strcmp(mode, "session") == 0 || (ask_and_wait(c, "SHOW POOLS") > 0 && is_in_session_mode(c, pool, false)))
			found_fmt(check, FOUND_WARNING, "Clients that keep a session get SN001; new ones wait for the cut-over, and notice nothing.",
					  "pool \"%s\" is in session mode at %s; now kept by: %s", pool, c->name, holder_of(c, &move->source, pool, "nobody"));
	}
	if (connections > allowed)
		found_fmt(check, FOUND_WARNING, "Lower pool_size or max_db_connections, by entry_options in the registry, or raise max_connections there.",
				  "%s may open %d connections to the target, for each user; that allows %d in all", c->name, connections, allowed);
}

void
check_poolers(const Move *move, const Check *check)
{
	const char *reason;
	const char *mode;
	const char *told = "";

	/* One shard's pool has others of the set: what fails, fails for all. */
	if (move->nshards == 0)
		return;
	if (!has_poolers(move))
	{
		if (query_bool(move->source.conn, "SELECT EXISTS (TABLE snowid.poolers) OR count(*) > 0 FROM snowid.shard_registry "
					   "WHERE shard IN (%s) AND coalesce(pool, entry_options) IS NOT NULL", shard_list(move)))
			found(check, FOUND_WARNING, "the registry names pools, and no --pooler is given",
				  "Clients of a pooler would stay with the source, with SN001. Name each one's console: --pooler CONNSTR --pooler-file FILE");
		return;
	}
	move = by_pools(move);
	if ((reason = open_consoles()) != NULL)
		found_fmt(check, FOUND_FAILED, "Look whether it runs, whether dbname is pgbouncer, and whether the role is one of its admin_users.", "no connection to %s", reason);
	else if ((reason = why_not_written(move, &move->target, false)) != NULL)
		found(check, FOUND_FAILED, reason, strstr(reason, "in two places") == NULL ? NULL :
			  "All shards of a pool move together. To look at the entries, type: snowid-move route --from CONNSTR");
	else
	{
		for (Console *c = consoles; c < consoles + nconsoles; c++)
			if ((mode = check_config(check, c, move)) != NULL)
				check_entries(check, c, move, mode);
		for (Console *c = consoles; c < consoles + nconsoles; c++)
			check_processes(check, c, &told);
	}
}
