/*
 * The copy of a batch: all that it has in one snapshot of the source, which is
 * the point from which on its slot tells what changes.
 *
 * PostgreSQL's own programs make the definitions: pg_dump, out of the snapshot;
 * what rows need, in one transaction, closed; and what is quicker to make of
 * rows that are there, by pg_restore.  In between the rows come, by COPY to COPY
 * over pairs of sessions, in pieces: a table, or a range of its pages, each in a
 * transaction of its own.  Tables are locked only while they are read, and never
 * waited for while others could go on: who waits for one of them would else wait
 * for us, and we for him.  A session that breaks has its piece copied again, as
 * long as the snapshot is held, also if the target was restarted.  Whoever comes
 * after a copy whose rows are not all there begins anew; once they are, he makes
 * what else is missing.
 *
 * Until the rows are there, and what is made of them, the schemas on the target belong
 * to us alone: else the owner of a table could give it what that would run with our rights.
 */
#include "stages.h"

#include "sql/queries.inc"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A table of twice as many bytes is copied in pieces of so many. */
#define PIECE_BYTES			(INT64CONST(64) << 20)

/* Small tables are copied in one transaction, up to so many, or so many bytes. */
#define TABLES_MAX			32
#define TABLES_BYTES		(INT64CONST(4) << 20)

/* Not more sessions than this without being told. */
#define JOBS_MAX			8

/* How often the slot is looked at, and progress told. */
#define WATCH_MS			1000

/* So often pieces may fail, one after the other, before one is done. */
#define BROKEN_MAX			60

/* How long the target may take to be restarted. */
#define RESTART_MS			60000

/* What is done at once; for the whole table, or on the target, there is no range. */
typedef struct Piece
{
	Shard	   *shard;
	char	   *table;
	char	   *columns;		/* in parentheses; "" for all */
	char	   *rows;			/* what to copy of it, as COPY takes it */
	char	   *look;			/* is it still the table that it was? */
	const char *format;			/* options of COPY */
	const char *statement;		/* for the target alone, instead of a copy */
	int64		bytes;
} Piece;

/* A pair of sessions, and what they are at. */
typedef struct Worker
{
	PGconn	   *from;
	PGconn	   *to;
	const Piece *first;			/* of its transaction; NULL: none */
	const Piece *piece;			/* that it is at */
	const Piece *end;
	int64		bytes;			/* of all these */
	char	   *xid;			/* of the COMMIT, if that was sent */
	bool		is_full;		/* the target must take some before more is
								 * read */
	bool		is_sent;		/* all rows have been read */
	bool		is_new;			/* its first rows may have been read already */
	bool		is_rewritten;	/* the table of which it was to read a range */
	bool		is_doubtful;	/* whether all rows could be seen */
	int64		waits_since;	/* for the source to begin; 0: it has begun */
	int64		told;
} Worker;

typedef struct Copy
{
	const Move *move;
	PGconn	   *keeper;			/* keeps the snapshot */
	char	   *snapshot;
	int			archive;		/* file without a name, with the definitions */
	int			jobs;
	Worker	   *workers;
	Piece	   *pieces;
	int			npieces;
	int			next;
	int			broken;			/* that have failed since one was done */
	bool		is_doubtful;	/* of a table, whether all rows could be seen */
	int64		bytes;			/* of all pieces */
	int64		bytes_done;
	int64		start;
	int64		watched;
	int64		told;
} Copy;

/* The schemas, as the queries of sql/ take them. */
static char *
schema_array(const Move *move, PGconn *conn)
{
	return text_of("ARRAY[%s]::name[]", schema_list(move, conn));
}

/* How far the copy is. */
static char *
progress_of_copy(const Copy *copy)
{
	const char *set = progress_of_set(copy->move);
	double		rate = copy->bytes_done / (Max(now_ms() - copy->start, 1) / 1000.0) / 1048576.0;
	int64		left = (copy->bytes - copy->bytes_done) >> 20;

	return text_of("%s%scopied %lld of about %lld MB, %.1f MB/s%s", set, *set != '\0' ? "; " : "",
				   (long long) copy->bytes_done >> 20, (long long) copy->bytes >> 20, rate,
				   left > 0 && rate > 0 ? text_of(", %d s left", (int) (left / rate)) : "");
}

/* To be called while the copy waits for anything. */
static Status
watch(Copy *copy)
{
	int			mark = mark_texts();
	int64		now = now_ms();
	Status		status;

	if (now - copy->watched < WATCH_MS)
		return STATUS_DONE;
	copy->watched = now;
	status = check_slot(copy->move, copy->move->options->max_wal);
	for (int i = 0; i < copy->jobs; i++)
		if (copy->workers[i].piece != NULL && copy->workers[i].waits_since > 0 && now - copy->workers[i].told >= TELL_MS)
		{
			copy->workers[i].told = now;
			tell_blockers(&copy->move->source, copy->move->source.aux, PQbackendPID(copy->workers[i].from));
		}
	if (copy->keeper != NULL)
		tell_now_and_then("%s", progress_of_copy(copy));
	else if (now - copy->told >= TELL_MS)
	{
		tell_statements(copy->move);
		copy->told = now;
	}
	free_texts(mark);
	return status;
}

/*
 * As many sessions as we have processors, but at most half of those that the
 * servers still give.
 */
static int
choose_jobs(const Move *move)
{
	const Side *sides[] = {&move->source, &move->target};
	int			jobs = (int) Min(sysconf(_SC_NPROCESSORS_ONLN), JOBS_MAX);

	if (move->options->jobs > 0)
		return move->options->jobs;
	for (int i = 0; i < 2; i++)
		jobs = Min(jobs, (int) query_int64(sides[i]->conn,
										   "SELECT (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
										   "- count(*)) / 2 FROM pg_stat_activity WHERE backend_type = 'client backend'"));
	return Max(jobs, 1);
}

/*
 * Take the snapshot: of the slot, which is made, and whose snapshot else would end
 * with the session that has made it; or, if rows are there, any.
 */
static Status
take_snapshot(Copy *copy, bool has_rows)
{
	const Move *move = copy->move;
	const Side *source = &move->source;
	PGconn	   *maker = has_rows ? NULL : open_replication(source->label, move->options->from);

	copy->keeper = open_connection(source->label, move->options->from);
	if ((maker != NULL && PQstatus(maker) != CONNECTION_OK) || PQstatus(copy->keeper) != CONNECTION_OK)
	{
		report_error("%s: %s", source->label,
					 PQerrorMessage(PQstatus(copy->keeper) != CONNECTION_OK ? copy->keeper : maker));
		PQfinish(maker);
		return STATUS_FAILED;
	}
	if (maker != NULL)
		copy->snapshot = create_slot_with_snapshot(source, maker, move->name);
	run(copy->keeper, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	if (maker != NULL)
		run(copy->keeper, "SET TRANSACTION SNAPSHOT %s", literal(copy->keeper, copy->snapshot));
	copy->snapshot = query_text(copy->keeper, "SELECT pg_export_snapshot()");
	PQfinish(maker);
	return STATUS_DONE;
}

/*
 * What there is to copy, the large tables first.  Before each piece a look: nobody may
 * have put something else in the table's place; and VACUUM FULL moves rows from one
 * range to another.  TRUNCATE and REPACK (CONCURRENTLY) leave none that the snapshot
 * sees; only the first of them is in the log.
 *
 * A range is a query, and planning it runs what is constant in an index, which may have
 * come since.  So a table whose owner is not trusted is copied whole: that plans nothing.
 */
static Status
list_pieces(Copy *copy)
{
	const Move *move = copy->move;
	const Side *source = &move->source;
	PGresult   *res = try_and_tell(source, copy->keeper, source->aux, text_of(
																			  "SELECT nspname, t, a.columns, pages, bytes, CASE WHEN %s THEN least(bytes / %lld, pages) ELSE 1 END, c.oid IN (%s), "
																			  "format('LOCK TABLE ONLY %%s IN ACCESS SHARE MODE; SELECT CASE WHEN to_regclass(%%L) <> %%s THEN concat(''it is another table now'')::int::text "
																			  "WHEN pg_relation_filenode(%%s) <> %%s THEN ''rewritten'' END; ', t, t, c.oid, c.oid, relfilenode), "
																			  "format('SELECT CASE WHEN pg_relation_filenode(%%s) <> %%s AND EXISTS (SELECT FROM ONLY %%s) THEN ''moved'' END; ', c.oid, relfilenode, t) "
																			  "FROM pg_publication p JOIN pg_publication_rel ON prpubid = p.oid JOIN pg_class c ON c.oid = prrelid "
																			  "JOIN pg_namespace n ON n.oid = relnamespace, format('%%I.%%I', nspname, relname) t, "
																			  "LATERAL (SELECT coalesce('(' || string_agg(quote_ident(attname), ', ' ORDER BY attnum) || ')', '') AS columns "
																			  " FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') a, "
																			  "LATERAL (SELECT pg_table_size(c.oid) AS bytes, pg_relation_size(c.oid) / current_setting('block_size')::int AS pages) s "
																			  "WHERE pubname = %s AND nspname IN (%s) ORDER BY bytes DESC, c.oid",
																			  move->options->trust_owners ? "true" : "relowner IN (" TRUSTED_ROLES_SQL ") AND nspowner IN (" TRUSTED_ROLES_SQL ")",
																			  (long long) PIECE_BYTES, binary_tables(move, copy->keeper), literal(copy->keeper, move->name), schema_list(move, copy->keeper)));
	int			ranges = 0;

	if (res == NULL)
	{
		report_error("%s: the tables cannot be listed: %s", source->label, PQerrorMessage(copy->keeper));
		return STATUS_FAILED;
	}
	for (int i = 0; i < PQntuples(res); i++)
		ranges += 1 + atoi(PQgetvalue(res, i, 5));
	copy->pieces = pg_malloc0(sizeof(Piece) * Max(ranges, 1));
	for (int i = 0; i < PQntuples(res); i++)
	{
		char	   *table = field(res, i, 1);
		char	   *columns = field(res, i, 2);
		int64		pages = strtoll(PQgetvalue(res, i, 3), NULL, 10);
		int64		bytes = strtoll(PQgetvalue(res, i, 4), NULL, 10);
		int			n = Max(atoi(PQgetvalue(res, i, 5)), 1);

		copy->bytes += bytes / n * n;
		for (int j = 0; j < n; j++)
		{
			Piece	   *piece = &copy->pieces[copy->npieces++];
			char	   *list = pg_strdup(columns);

			*piece = (Piece)
			{
				.shard = shard_of_schema(move, PQgetvalue(res, i, 0)),.table = table,
					.columns = columns,.bytes = bytes / n,
					.format = *PQgetvalue(res, i, 6) == 't' ? "(FORMAT binary)" : ""
			};
			piece->look = text_of("%s%s", PQgetvalue(res, i, 7), n > 1 ? PQgetvalue(res, i, 8) : "");
			if (*list != '\0')
				list[strlen(list) - 1] = '\0';
			piece->rows = n == 1 ? text_of("%s %s", table, columns) :
				text_of("(SELECT %s FROM ONLY %s WHERE ctid >= '(%lld,0)'%s)", *list != '\0' ? list + 1 : "", table,
						(long long) pages * j / n,
						j == n - 1 ? "" : text_of(" AND ctid < '(%lld,0)'", (long long) pages * (j + 1) / n));
			free(list);
		}
	}
	PQclear(res);
	return STATUS_DONE;
}

/*
 * A COPY, of whatever kind, of rows in the encoding of the server that they go to: no
 * text is converted where both have the same.  The statement itself is in ours.
 */
char *
copy_of(PGconn *to, char *copy)
{
	const char *encoding = PQparameterStatus(to, "server_encoding");

	return strcmp(encoding, "UTF8") == 0 ? copy : text_of("SET client_encoding = %s; %s; SET client_encoding = 'UTF8'", literal(to, encoding), copy);
}

static PGconn *
open_session(const Side *side, const char *conninfo)
{
	PGconn	   *conn = open_connection(side->label, conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		report_error("%s: %s", side->label, PQerrorMessage(conn));
	return conn;
}

static void
close_worker(Worker *worker)
{
	PQfinish(worker->from);
	PQfinish(worker->to);
	worker->from = worker->to = NULL;
}

/* The sessions that a piece needs; false if there is none to be had. */
static bool
open_worker(const Copy *copy, Worker *worker)
{
	const Move *move = copy->move;
	bool		is_new = worker->to == NULL;

	if (is_new)
	{
		worker->to = open_session(&move->target, move->options->to);
		if (PQstatus(worker->to) == CONNECTION_OK)
			run(worker->to, "SET snowid_move.copies = %s", literal(worker->to, set_journal(move, &move->target)->move_id));
	}
	if (PQstatus(worker->to) != CONNECTION_OK)
		return false;

	if (worker->piece->statement != NULL)
		return !is_new || try_run(worker->to, SETTINGS_OF_VIEWS, "false");
	if (worker->from != NULL)
		return true;
	worker->from = open_session(&move->source, move->options->from);
	if (PQstatus(worker->from) != CONNECTION_OK)
		return false;
	run(worker->from, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	if (try_run(worker->from, "SET TRANSACTION SNAPSHOT %s; SAVEPOINT free", literal(worker->from, copy->snapshot)))
		return true;
	report_error("%s: the copy's snapshot is lost: %s", move->source.label, PQerrorMessage(worker->from));
	return false;
}

/* The first piece of some that is none of a shard that has failed; NULL: none. */
static const Piece *
next_piece(const Piece *piece, const Piece *end)
{
	while (piece < end && piece->shard != NULL && piece->shard->failed)
		piece++;
	return piece < end ? piece : NULL;
}

/* Begin a piece; what its session has locked for the one before is free again. */
static bool
begin_piece(Worker *worker)
{
	const Piece *piece = worker->piece;

	worker->is_full = worker->is_sent = worker->is_rewritten = worker->is_doubtful = false;
	worker->is_new = true;
	free(worker->xid);
	worker->xid = NULL;
	worker->waits_since = 0;
	if (piece->statement != NULL)
		return PQsendQuery(worker->to, piece->statement);
	worker->waits_since = worker->told = now_ms();
	worker->told += SILENCE_MS - TELL_MS;
	return PQsendQuery(worker->from, text_of("ROLLBACK TO free; %s%s", piece->look, copy_of(worker->to, text_of("COPY %s TO STDOUT %s", piece->rows, piece->format))));
}

/* Has the source begun to send, so that the target takes it?  False after an error. */
static bool
await_rows(Copy *copy, Worker *worker)
{
	const Piece *piece = worker->piece;
	PGresult   *res = NULL;
	bool		has_begun;

	if (!PQconsumeInput(worker->from))
		return false;
	while (!PQisBusy(worker->from) && (res = PQgetResult(worker->from)) != NULL)
	{
		has_begun = PQresultStatus(res) == PGRES_COPY_OUT;
		if (PQresultStatus(res) == PGRES_TUPLES_OK)
		{
			worker->is_doubtful |= strcmp(PQgetvalue(res, 0, 0), "rewritten") == 0;
			worker->is_rewritten = strcmp(PQgetvalue(res, 0, 0), "moved") == 0;
		}
		if (!has_begun && (!has_succeeded(res) || worker->is_rewritten))
		{
			PQclear(res);
			return false;
		}
		PQclear(res);
		if (!has_begun)
			continue;
		worker->waits_since = 0;
		copy->is_doubtful |= worker->is_doubtful;
		PQsetnonblocking(worker->to, false);
		res = PQexec(worker->to, copy_of(worker->to, text_of("%sCOPY %s %s FROM STDIN %s", piece == worker->first ? "BEGIN; " : "",
															 piece->table, piece->columns, piece->format)));
		has_begun = PQresultStatus(res) == PGRES_COPY_IN;
		if (!has_begun)
			(void) has_succeeded(res);
		PQclear(res);
		PQsetnonblocking(worker->to, true);
		return has_begun;
	}
	return true;
}

/* Take what has ended; false after an error, which the connection has. */
static bool
take_results(PGconn *conn)
{
	bool		done = true;
	PGresult   *res;

	while ((res = PQgetResult(conn)) != NULL)
	{
		if (!has_succeeded(res))
			done = false;
		PQclear(res);
		if (!done && PQstatus(conn) != CONNECTION_OK)
			break;
	}
	return done;
}

/* All rows are there.  If the answer to the COMMIT is lost, its number tells. */
static bool
commit_pieces(Worker *worker)
{
	PGresult   *res;

	PQsetnonblocking(worker->to, false);
	if ((res = try_query(worker->to, "SELECT pg_current_xact_id()")) == NULL)
		return false;
	worker->xid = field(res, 0, 0);
	PQclear(res);
	return try_run(worker->to, "COMMIT");
}

typedef enum Progress
{
	GOES_ON,
	ENDED,
	BROKEN
} Progress;

/* Send what has come from the source; false after an error. */
static bool
pass_rows(Worker *worker)
{
	char	   *row;
	int			length = 0;
	int			sent = 1;

	/* An error of the target ends its COPY, and is found by sending more. */
	if (!PQconsumeInput(worker->from) || !PQconsumeInput(worker->to))
		return false;
	while (sent == 1 && (length = PQgetCopyData(worker->from, &row, true)) > 0)
	{
		sent = PQputCopyData(worker->to, row, length);
		PQfreemem(row);
	}
	if (sent != 1 || length == -2)
	{
		(void) take_results(sent != 1 ? worker->to : worker->from);
		return false;
	}
	worker->is_sent = length == -1;
	return !worker->is_sent || (take_results(worker->from) && PQputCopyEnd(worker->to, NULL) == 1);
}

/* Do what can be done for a piece without waiting. */
static Progress
go_on(Copy *copy, Worker *worker)
{
	bool		is_copy = worker->piece->statement == NULL;
	const Piece *next;
	int			left;

	if (worker->waits_since > 0 && !await_rows(copy, worker))
		return BROKEN;
	if (worker->waits_since > 0)
		return GOES_ON;
	if (is_copy && !worker->is_sent && !worker->is_full && !pass_rows(worker))
		return BROKEN;
	if ((left = PQflush(worker->to)) < 0)
		return BROKEN;
	worker->is_full = left == 1;
	if (is_copy && !worker->is_sent)
		return GOES_ON;
	if (!PQconsumeInput(worker->to))
		return BROKEN;
	if (worker->is_full || PQisBusy(worker->to))
		return GOES_ON;
	if (!take_results(worker->to))
		return BROKEN;
	if ((next = next_piece(worker->piece + 1, worker->end)) != NULL)
	{
		worker->piece = next;
		return begin_piece(worker) ? GOES_ON : BROKEN;
	}
	return !is_copy || commit_pieces(worker) ? ENDED : BROKEN;
}

/* A target that was restarted has all that was committed; false if it is gone, or another. */
static bool
check_target(const Copy *copy)
{
	const Side *target = &copy->move->target;
	int64		until = now_ms() + RESTART_MS;

	if (try_run(target->conn, "SELECT"))
		return true;
	report_info("%s: waiting until it can be reached again", target->label);
	do
	{
		while (PQping(copy->move->options->to) != PQPING_OK && now_ms() < until)
			wait_ms(100);

		/* The first error may have been the server's last words. */
		if (PQstatus(target->conn) == CONNECTION_OK)
			(void) try_run(target->conn, "SELECT");
		if (resume_session(copy->move, target))
			return true;
		wait_ms(100);
	} while (PQstatus(target->conn) != CONNECTION_OK && now_ms() < until);
	return false;
}

/* Has the piece whose COMMIT was not answered been committed?  After a crash, its number may have been given to nobody. */
static bool
is_committed(const Copy *copy, const char *xid)
{
	PGconn	   *conn = copy->move->target.conn;
	PGresult   *res = NULL;
	char	   *state;

	do
	{
		PQclear(res);
		res = try_query(conn, "SELECT pg_xact_status(%s)", literal(conn, xid));
		if (res == NULL && strcmp(last_sqlstate, "22023") != 0)
			fail_with(conn);
		state = res != NULL ? PQgetvalue(res, 0, 0) : "";
	} while (strcmp(state, "in progress") == 0);
	return strcmp(state, "committed") == 0;
}

/* Has a statement failed for want of something that may be there soon, or by somebody's cancel? */
static bool
is_passing(void)
{
	return strncmp(last_sqlstate, "53", 2) == 0 || strncmp(last_sqlstate, "40", 2) == 0 ||
		strcmp(last_sqlstate, "57014") == 0;
}

/*
 * A piece has failed, and with it those of its transaction.  If that was a session's
 * end, or passes, they are begun again.  Else its shard is left, or what was only a
 * statement told.  False if the copy cannot go on.
 */
static bool
mend_piece(Copy *copy, Worker *worker)
{
	const Piece *piece = worker->piece;
	PGconn	   *from = worker->from;
	PGconn	   *to = worker->to;

	/*
	 * libpq can tell that a write has failed before it sees that the session
	 * has ended.
	 */
	bool		is_broken = strcmp(last_sqlstate, "08006") == 0 || PQstatus(to) != CONNECTION_OK || (from != NULL && PQstatus(from) != CONNECTION_OK);
	bool		at_source = from != NULL && *PQerrorMessage(from) != '\0' && (PQstatus(from) != CONNECTION_OK || PQstatus(to) == CONNECTION_OK);
	const char *label = at_source ? copy->move->source.label : copy->move->target.label;
	char	   *message = pg_strdup(PQerrorMessage(at_source ? from : to));
	bool		again = is_broken || is_passing();

	close_worker(worker);
	if (again)
	{
		if (++copy->broken > BROKEN_MAX || !check_target(copy))
		{
			report_error("%s: %s", label, message);
			return false;
		}
		back_off(copy->broken - 1);
	}
	if (is_broken && worker->xid != NULL && is_committed(copy, worker->xid))
		worker->first = NULL;
	else if (again)
		report_info("%s: %s; %s is begun again: %s", label, is_broken ? "a session has ended" : "that may pass",
					piece->statement != NULL ? piece->statement : piece->table, message);
	else if (piece->statement != NULL)
	{
		report_warning("%s: %s: %s", label, piece->statement, message);
		worker->first = NULL;
	}
	else
	{
		if (worker->is_rewritten)
		{
			report_error("%s: table %s was rewritten while it was copied, by VACUUM FULL, CLUSTER or the like", copy->move->source.label, piece->table);
			report_hint("It is copied anew when you type the same command again.");
		}
		else
			report_error("%s: table %s cannot be copied: %s", label, piece->table, message);
		leave_shard(copy->move, piece->shard);
		free(message);
		return false;			/* the others begin anew */
	}
	worker->piece = worker->first;
	free(message);
	return copy->keeper == NULL || PQstatus(copy->keeper) == CONNECTION_OK;
}

/* Give a worker the next piece, and small ones after it. */
static void
take_pieces(Copy *copy, Worker *worker)
{
	const Piece *end = copy->pieces + copy->npieces;
	const Piece *first = next_piece(copy->pieces + copy->next, end);
	const Piece *p = first;
	int			most = Min(TABLES_MAX, (copy->npieces - copy->next) / copy->jobs);

	worker->piece = worker->first = first;
	if (first == NULL)
	{
		copy->next = copy->npieces;
		return;
	}
	worker->bytes = p++->bytes;
	while (p < end && p->statement == NULL && p - first < most && worker->bytes + p->bytes <= TABLES_BYTES)
		worker->bytes += p++->bytes;
	worker->end = p;
	copy->next = p - copy->pieces;
}

/* Give each worker that has none a piece; how many have one, or -1 if the copy cannot go on. */
static int
hand_out(Copy *copy)
{
	int			busy = 0;

	for (int i = 0; i < copy->jobs; i++)
	{
		Worker	   *worker = &copy->workers[i];
		bool		is_begun = worker->piece != NULL && worker->to != NULL;

		while (!is_begun)
		{
			if (worker->piece == NULL)
				take_pieces(copy, worker);
			if (worker->piece == NULL)
				break;
			if (!open_worker(copy, worker))
			{
				/* No connection is free, or the target is restarted just now. */
				if ((copy->keeper != NULL && !try_run(copy->keeper, "SELECT")) ||
					++copy->broken > BROKEN_MAX || !check_target(copy))
					return -1;
				close_worker(worker);
				back_off(copy->broken - 1);
				continue;
			}
			is_begun = begin_piece(worker);
			if (!is_begun && !mend_piece(copy, worker))
				return -1;
		}
		if (is_begun)
			busy++;
	}
	return busy;
}

/* What a worker had is done, and its last table free. */
static void
end_pieces(Copy *copy, Worker *worker)
{
	copy->broken = 0;
	copy->bytes_done += worker->bytes;
	if (worker->from != NULL && !try_run(worker->from, "ROLLBACK TO free"))
		close_worker(worker);
}

/* Do all pieces, by as many sessions as there are jobs. */
static Status
do_pieces(Copy *copy)
{
	struct pollfd *fds = pg_malloc(sizeof(struct pollfd) * copy->jobs);
	Status		status = STATUS_DONE;
	int			busy;

	copy->start = now_ms();
	while (status == STATUS_DONE && (busy = hand_out(copy)) != 0)
	{
		int			mark = mark_texts();
		int			wait = WATCH_MS;

		if (busy < 0)
			status = STATUS_FAILED;
		for (int i = 0; i < copy->jobs && busy > 0; i++)
		{
			Worker	   *worker = &copy->workers[i];
			bool		reads = worker->piece != NULL && worker->piece->statement == NULL && !worker->is_full && !worker->is_sent;

			fds[i].fd = worker->piece == NULL ? -1 : PQsocket(reads ? worker->from : worker->to);
			fds[i].events = POLLIN | (worker->is_full ? POLLOUT : 0);
			fds[i].revents = 0;
			if (worker->piece != NULL && worker->is_new)
				wait = 0;
			worker->is_new = false;
		}
		if (busy > 0)
			(void) poll(fds, copy->jobs, wait);
		for (int i = 0; i < copy->jobs && busy > 0; i++)
		{
			Worker	   *worker = &copy->workers[i];
			Progress	progress = worker->piece != NULL ? go_on(copy, worker) : GOES_ON;

			if (progress == BROKEN && !mend_piece(copy, worker))
				status = STATUS_FAILED;
			else if (progress == ENDED)
				worker->piece = NULL;
			if (progress != GOES_ON && worker->piece == NULL)
				end_pieces(copy, worker);
		}
		if (status == STATUS_DONE)
			status = watch(copy);
		free_texts(mark);
	}
	free(fds);
	return status;
}

/*
 * Have pg_restore make what comes after the rows, all or what is in a list.  It goes on
 * after an error; says whether there was none.
 */
static Status
run_pg_restore(Copy *copy, int jobs, FILE *list, FILE *errors, bool *is_clean)
{
	pid_t		child = start_after_rows(copy->move->target.conn, copy->move->options->bindir, copy->archive, jobs,
										 list == NULL ? -1 : fileno(list), fileno(errors));
	Status		status = STATUS_DONE;
	int			code = -1;

	while (child != 0 && waitpid(child, &code, WNOHANG) == 0)
	{
		if (status == STATUS_DONE && (status = watch(copy)) != STATUS_DONE)
			kill(child, SIGTERM);
		wait_ms(5);
	}
	*is_clean = code == 0;
	return status;
}

/*
 * Make what comes after the rows.  Sessions of pg_restore can have a deadlock on
 * partitions' indexes, or be ended, so what is missing after an error is made by one,
 * as that of an earlier time.  Then both sides are compared; what that has said is told if they differ.
 */
static Status
restore_after_rows(Copy *copy, bool goes_on)
{
	FILE	   *errors = tmpfile();
	FILE	   *list = NULL;
	bool		is_clean = false;
	Status		status = STATUS_DONE;

	if (errors == NULL)
	{
		report_error("could not make a temporary file: %m");
		return STATUS_FAILED;
	}
	for (int i = 0; i < 2 && !is_clean && status == STATUS_DONE; i++)
	{
		rewind(errors);
		if (ftruncate(fileno(errors), 0) != 0 || ((goes_on || i > 0) && (list = list_missing(copy->move, copy->archive)) == NULL))
			status = STATUS_FAILED;
		else
			status = run_pg_restore(copy, i == 0 ? copy->jobs : 1, list, errors, &is_clean);
		if (list != NULL)
			fclose(list);
		list = NULL;
	}
	if (status == STATUS_DONE)
		give_back(copy->move);
	if (status == STATUS_DONE && (status = compare_definitions(copy->move, copy->archive)) != STATUS_DONE)
	{
		rewind(errors);
		for (int c; !is_clean && (c = getc(errors)) != EOF;)
			putc(c, stderr);
		if (copy->move->nshards == 1)
			report_hint("Correct that on the target, and type the same command again; the rows stay. If it takes another definition of the shard, type before: snowid-move abort");
	}
	fclose(errors);
	return status;
}

/* Run the statements of a result on the target. */
static Status
do_statements(Copy *copy, PGresult *res, int jobs)
{
	copy->jobs = jobs;
	copy->npieces = copy->next = 0;
	copy->pieces = pg_malloc0(sizeof(Piece) * Max(PQntuples(res), 1));
	for (int i = 0; i < PQntuples(res); i++)
		copy->pieces[copy->npieces++].statement = field(res, i, 0);
	PQclear(res);
	return do_pieces(copy);
}

/* Have statistics; those that a crash loses come by autovacuum: no disk is awaited. */
static Status
analyze(Copy *copy)
{
	PGconn	   *conn = copy->move->target.conn;

	return do_statements(copy, query(conn,
									 "SELECT format('SET LOCAL synchronous_commit = off; ANALYZE %%I.%%I', nspname, relname) "
									 "FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
									 "WHERE nspname IN (%s) AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relpages DESC",
									 schema_list(copy->move, conn)), copy->jobs);
}

/*
 * Fill the materialized views that are filled on the source, each after those that it
 * may read.  Just before the hand-over, since replication brings no REFRESH.  A shard
 * with one that cannot be filled is left.
 */
Status
fill_views(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	PGresult   *views = query(move->source.conn, FILLED_VIEWS_SQL, schema_array(move, move->source.conn));
	Worker		worker = {0};
	Copy		copy = {.move = move,.archive = -1,.workers = &worker};
	char	   *names = query_text(move->source.conn, "SELECT coalesce(array_agg(format('%%I.%%I', nspname, relname)), '{}') "
								   "FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
								   "WHERE nspname IN (%s) AND relkind = 'm' AND relispopulated", schema_list(move, move->source.conn));
	PGresult   *empty;
	Status		status = do_statements(&copy, views, 1);

	close_worker(&worker);
	empty = query(conn, "SELECT n, nspname FROM unnest(%s::text[]) n JOIN pg_class c ON c.oid = to_regclass(n) "
				  "JOIN pg_namespace s ON s.oid = relnamespace WHERE NOT relispopulated", literal(conn, names));
	for (int i = 0; i < PQntuples(empty); i++)
	{
		report_error("materialized view %s is filled on the source, and could not be on the target", PQgetvalue(empty, i, 0));
		report_hint("Correct that, and type the same command again. If it is not needed, type on the source: REFRESH MATERIALIZED VIEW %s WITH NO DATA;",
					PQgetvalue(empty, i, 0));
		leave_shard(move, shard_of_schema(move, PQgetvalue(empty, i, 1)));
	}
	PQclear(empty);
	return status;
}

/* The rows; then the snapshot has done its work. */
static Status
copy_rows(Copy *copy)
{
	const Move *move = copy->move;
	Status		status;

	if ((status = list_pieces(copy)) != STATUS_DONE || (status = do_pieces(copy)) != STATUS_DONE)
		return status;
	report_info("%s", progress_of_copy(copy));
	for (int i = 0; i < copy->jobs; i++)
		close_worker(&copy->workers[i]);
	if (!try_run(copy->keeper, "COMMIT"))
	{
		report_error("%s: the session that kept the copy's snapshot was ended: %s", move->source.label, PQerrorMessage(copy->keeper));
		return STATUS_FAILED;
	}
	if (copy->is_doubtful)
		record_reader(move, REWRITTEN);
	if (!check_target(copy))
		return STATUS_FAILED;
	record_step(move, &move->target, ROWS);
	return STATUS_DONE;
}

/* All of the copy, up to the subscription that goes on from its snapshot. */
static Status
copy_once(Copy *copy, bool has_rows)
{
	const Move *move = copy->move;
	Status		status;

	if ((status = check_definitions(move, &move->source)) != STATUS_DONE)
		return status;
	if (!has_rows)
		publish(move);
	else if (!hold_schemas(move))
		return STATUS_FAILED;
	if ((status = reach_publication(move)) != STATUS_DONE || (status = take_snapshot(copy, has_rows)) != STATUS_DONE ||
		(status = copy_schemas(move, copy->keeper, copy->snapshot, copy->archive, has_rows)) != STATUS_DONE)
		return status;
	if (!has_rows && (status = copy_rows(copy)) != STATUS_DONE)
		return status;
	PQfinish(copy->keeper);
	copy->keeper = NULL;
	if (!has_rows && !hold_schemas(move))
		return STATUS_FAILED;
	if ((status = await_shared_rows(move, shared_tables(move))) == STATUS_DONE &&
		(status = restore_after_rows(copy, has_rows)) == STATUS_DONE &&
		(status = analyze(copy)) == STATUS_DONE)
		subscribe(move);
	return status;
}

/* Has an earlier copy brought all rows, and is there still the slot that goes on from them? */
static bool
has_rows(const Move *move)
{
	const Side *source = &move->source;

	return is_at(move, &move->target, ROWS) && who_failed_over(move) == NULL &&
		query_bool(source->conn, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s AND wal_status <> 'lost')",
				   literal(source->conn, move->name));
}

/*
 * Copy a batch, and begin to follow.  A shard that cannot be copied is left, and its
 * move undone; the others begin anew, since their slot has its changes, too.
 */
Status
copy_batch(const Move *move)
{
	for (;;)
	{
		FILE	   *archive = tmpfile();
		Copy		copy = {.move = move,.archive = archive == NULL ? -1 : fileno(archive),.jobs = choose_jobs(move)};
		bool		goes_on = has_rows(move);
		const Move *failed;
		Status		status;

		if (archive == NULL)
		{
			report_error("could not make a temporary file: %m");
			return STATUS_FAILED;
		}
		if (!goes_on)
		{
			if ((status = forget_copy(move)) != STATUS_DONE)
				return status;
			record_reader(move, NULL);
			record_timelines(move);
		}
		copy.workers = pg_malloc0(sizeof(Worker) * copy.jobs);
		status = copy_once(&copy, goes_on);
		for (int i = 0; i < copy.jobs; i++)
			close_worker(&copy.workers[i]);
		PQfinish(copy.keeper);
		fclose(archive);
		tie_shards(move, false);
		fail_whole_pools(move);
		failed = select_shards(move, has_failed, NULL);
		if (status != STATUS_FAILED || failed->nshards == 0 || failed->nshards == move->nshards)
			return status;
		if (abort_move(failed) != STATUS_DONE)
			return STATUS_FAILED;
		move = select_shards(move, has_not_failed, NULL);
		read_journal(move, &move->target);
		report_info("%s: the copy begins anew without %s", move->title, failed->title);
	}
}
