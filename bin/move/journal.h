/*
 * The journal, and what a move is: the set of shards, the two servers, and the
 * options.
 *
 * The unit of a command is a set of shards; one shard is a set of one.  The set
 * is moved in batches.  The shards of a batch share the publication, the slot
 * and the subscription, and the move_id in their rows of the journal.  They are
 * copied together, and then handed over some at a time: each hand-over is a
 * decision of its own, so that nobody waits for a shard but his own and a few
 * neighbours, and a shard that cannot be handed over holds nobody up.
 *
 * A Move is all of the set, a batch, or any part of one: parts share the shards
 * and the connections with the set.  A step is recorded for all shards of a part
 * in one statement.
 */
#ifndef JOURNAL_H
#define JOURNAL_H

#include "connection.h"
#include "situation.h"

/* Of the two-key advisory locks: "SNOW", and the shard, or what is of no shard. */
#define LOCK_CLASS			0x534E4F57
#define FILE_LOCK			(-1)	/* a pooler's file */

/* Of who changes a role's default privileges; only who may write the journal can have it. */
#define ONE_AT_A_TIME		"LOCK TABLE snowid.moves IN SHARE UPDATE EXCLUSIVE MODE"

typedef enum Verify
{
	VERIFY_NONE,
	VERIFY_COUNTS,
	VERIFY_CHECKSUMS
} Verify;

typedef struct MoveOptions
{
	int		   *shards;			/* rising, none twice */
	int			nshards;
	int			batch;			/* shards that are copied together; 0: choose */
	int			jobs;			/* sessions that copy; 0: choose */
	char	   *target_ddl;		/* what to run there before the rows; or NULL */
	const char *from;			/* connection strings, as given */
	const char *to;
	const char *source_for_target;	/* how the servers reach each other; NULL: */
	const char *target_for_source;	/* as we do, without password */
	const char *registry;		/* server with the registry of all; or NULL */
	const char **poolers;		/* admin consoles */
	int			npoolers;
	const char *pooler_file;	/* entries, included by their configurations */
	const char *pooler_command; /* brings the file there; or NULL */
	const char *bindir;			/* of pg_dump; NULL: our own, or the PATH */
	int			pause_limit_ms;
	int			lock_timeout_ms;
	int			retries;
	Verify		verify;
	int64		max_wal;		/* bytes that the slot may keep */
	int64		max_lag;		/* bytes behind at which to cut over */
	bool		stop_after_copy;	/* cut over later */
	bool		reverse;		/* replicate back afterwards */
	bool		keep_name;		/* don't rename the source's copy */
	bool		dry_run;		/* finish only looks */
	bool		json;			/* plan and status */
	const char *fix_script;		/* where plan writes commands; NULL: nowhere */
	bool		trust_owners;	/* with whatever replication runs as superuser */
	const char *as;				/* the schema's name at --to; NULL: its own */
	const char *to_file;		/* a directory to copy into; or NULL */
	int			number;			/* of the copy as a shard; -1: it is none */
	bool		definitions;	/* copy no rows but the ledger's */
	bool		keys;			/* diff names each row */
	bool		yes;			/* erase and restore do not ask */
	bool		fix;			/* audit mends what can lose nothing */
	bool		cascade;		/* finish drops what others have made of the
								 * copy, and a changed one */
} MoveOptions;

/* The row of snowid.moves for one shard on one server. */
typedef struct Journal
{
	bool		exists;
	char	   *move_id;		/* the same on both servers */
	char	   *peer;			/* the other server, as its Side's home, */
	char	   *peer_system;	/* and system */
	char	   *timelines;		/* of both servers, when they were known to
								 * have the same rows */
	char	   *reader;			/* who read the slot then, and so ever since */
	Stand		at;				/* its role and step */
	Role		begun_as;		/* its role when the move began */
	bool		closed;
	char	   *schema;			/* its name there now */
	char	   *changed_at;		/* when the step was recorded */
	char	   *fingerprint;	/* of the definitions that both servers have */
	char	   *copied_fingerprint; /* of those that were copied: tables that
									 * are newer have been brought */
	bool		reverse;		/* replicate back afterwards; of no way back */
	bool		keep_name;
	char	   *name;			/* of publication, slot and subscription */
	char	   *reverse_name;
	char	   *registry;		/* as the option, without password */
	char	   *fleet_move;		/* for which snowid-fleet began it, or NULL */
	char	   *poolers;		/* where the shard's pool may be paused, a
								 * line each */
	char	   *target_ddl_md5; /* not the text, which its writers could
								 * change */
} Journal;

typedef struct Shard
{
	int			number;
	char	   *schema;			/* its name as the shard; NULL: not registered */
	const char *pool;			/* the entry of a pooler that leads to it */
	int			tie;			/* the lowest of those that it goes with; 0:
								 * not known */
	Journal		journals[2];	/* of the two servers: journal_of() */
	bool		failed;			/* it has been told, and is left where it is */
	int			tables;			/* measure_shards() */
	int			sequences;
	int64		bytes;
} Shard;

/* How far the command is with its set. */
typedef struct Tally
{
	int			shards;			/* that are to be moved */
	int			moved;
	int			pause_ms;		/* the longest */
	int			last_pause_ms;
	int			client_wait_ms; /* the longest that a pooler has seen */
	int64		resumed_at;		/* when the poolers let the clients go on */
	int64		start;
	bool		unrouted;		/* a pooler has the old entries */
}			Tally;

typedef struct Move
{
	const MoveOptions *options;
	Side		source;
	Side		target;
	Shard	  **shards;
	int			nshards;
	const struct Move *set;		/* all shards of the command */
	Tally	   *tally;
	char	   *title;			/* "shard 5", "shards 0-9,15": for messages */
	char	   *name;			/* of publication, slot and subscription */
	char	   *reverse_name;	/* the same for the way back */
} Move;

/* Parts of a set, in its order. */
typedef bool (*ShardTest) (const Move *move, Shard *shard, const void *argument);

extern Move *make_set(const MoveOptions *options);
extern char *whole_command(const Move *move, const char *verb); /* options.c */
extern Move *select_shards(const Move *move, ShardTest test, const void *argument);
extern Shard *find_shard(const Move *move, int number);
extern Move *select_range(const Move *move, int first, int count);
extern bool has_failed(const Move *move, Shard *shard, const void *unused);
extern bool has_not_failed(const Move *move, Shard *shard, const void *unused);

/* The server at which the move began; and a way back as what it is, a move from the other one. */
extern const Side *first_side(const Move *move);
extern void swap_sides(Move *move);
extern void turn_sides(Move *move);

/* A shard's row on a server; and, where all rows say the same, the first. */
extern Journal *journal_of(Shard *shard, const Side *side);
extern Journal *set_journal(const Move *move, const Side *side);

/* For IN (...): the numbers of the set's shards, and their schemas, also as a server has them. */
extern char *shard_list(const Move *move);
extern char *schema_list(const Move *move, PGconn *conn);
extern char *name_list(const Move *move, const Side *side);
extern const char *name_on(const Side *side, Shard *shard);

extern bool lock_shards(const Move *move, const Side *side);
extern bool check_journal_rights(const Side *side);
extern void read_journal(const Move *move, const Side *side);

/* Is something true of all rows there, or of one? */
typedef bool (*RowTest) (const Journal *row, Step step);

extern bool row_exists(const Journal *row, Step unused);
extern bool row_is_at(const Journal *row, Step step);
extern bool row_has_reached(const Journal *row, Step step);
extern bool row_is_closed(const Journal *row, Step unused);
extern bool all_rows(const Move *move, const Side *side, RowTest test, Step step);
extern bool any_row(const Move *move, const Side *side, RowTest test, Step step);

#define is_known(move, side)			all_rows(move, side, row_exists, NO_STEP)
#define is_at(move, side, step)			all_rows(move, side, row_is_at, step)
#define has_reached(move, side, step)	all_rows(move, side, row_has_reached, step)
#define is_closed(move, side)			all_rows(move, side, row_is_closed, NO_STEP)
#define is_any_known(move, side)		any_row(move, side, row_exists, NO_STEP)
#define is_any_at(move, side, step)		any_row(move, side, row_is_at, step)

/* Where a shard stands, and those that do so. */
extern bool is_way_back(const Shard *shard);
extern Situation situation_of(const Shard *shard);
extern Move *select_situations(const Move *move, int situations);

/* In the transaction that the connection has open, if any. */
extern void record_step_on(const Move *move, const Side *side, PGconn *conn, Step step);
extern void record_step(const Move *move, const Side *side, Step step);
extern void record_detail(const Move *move, PGconn *conn, const char *key, const char *value);

extern bool failed_over(const Move *move, const Side *side);
extern const char *who_failed_over(const Move *move);
extern void record_timelines(const Move *move);

extern void claim_source(const Move *move);
extern bool claim_target(const Move *move);

#endif							/* JOURNAL_H */
