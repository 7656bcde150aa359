/*
 * The stages of a move: each does its part for a set of shards, and says how it
 * ended.  None knows which command has called it.
 */
#ifndef STAGES_H
#define STAGES_H

#include "journal.h"

/* How long to wait in silence. */
#define SILENCE_MS			3000

/* By default so many shards are copied together. */
#define BATCH_MAX			400

/*
 * Whatever is not done has been told, with its hint.  A shard for which a stage
 * could not be done, though it could for others, is marked as failed.
 */
typedef enum Status
{
	STATUS_DONE,				/* for all that are not marked */
	STATUS_FAILED,				/* the same command may go on from here */
	STATUS_UNDO,				/* no repetition would cure it: undo the move */
	STATUS_UNCERTAIN			/* decided, or perhaps, and not complete: stop */
} Status;

/* precheck.c, on finding.c and probe.c */

/*
 * Run all prechecks and print each with its result.  Shards for which one has
 * failed are marked.  Needs both connections, the schemas, the names and the
 * journals as they are.
 */
extern void run_prechecks(const Move *move);
extern bool is_code_trusted(const Move *move);
extern bool owners_are_trusted(const Move *move, const char *schema, PGconn *from);

/* Those that are about a shard's own definitions; true if none has failed. */
extern bool check_new_tables(const Move *single);

/* How many findings were printed. */
extern int	nfailures;
extern int	nwarnings;

/* The same before a split; true if none has failed. */
extern bool run_split_checks(const Move *move, bool again);
extern bool has_manager(const Move *set);

/* fingerprint.c: has anybody changed the definitions? */

extern char **try_fingerprints(const Move *move, const Side *side);
extern char **note_definitions(const Move *move, const Side *side);
extern bool is_as_noted(const char *noted, const char *now);
extern PGresult *new_tables(PGconn *conn, const char *schema, const char *noted);
extern char *name_changes(PGconn *conn, PGconn *other, const char *schema, const char *noted);

/* schema.c: the definitions */

extern char *being_extended_sql(const Move *move, PGconn *conn);
#define TO_TRUST	"If you trust that role with both servers, say so: --trust-owners."
/* What begins an entry in pg_dump's script; its header follows. */
#define ENTRY_START		"\n--\n-- Name: "

extern char *next_header(char *p);
extern bool calls_are_trusted(const MoveOptions *options, PGconn *conn, const char *schemas);
extern bool names_are_trusted(const MoveOptions *options, PGconn *from, PGconn *conn, const char *schemas);
extern char *lock_of_definitions(const MoveOptions *options, PGconn *conn, const char *schema, const char *tables);
extern bool names_are_held(const MoveOptions *options, PGconn *conn, int pid, const char *schema, const char *tables);
extern bool is_kept_from_owners(const Move *move);
extern void give_back(const Move *move);
extern bool hold_schemas(const Move *move);
extern void tell_to_begin_anew(const Move *move, const char *or);
extern void tell_changes(const Move *single, const Side *side, const char *since);
extern Status check_definitions(const Move *move, const Side *side);
extern Status compare_definitions(const Move *move, int archive);
extern Status copy_schemas(const Move *move, PGconn *keeper, const char *snapshot, int archive, bool has_rows);

extern FILE *list_missing(const Move *move, int archive);
extern bool make_missing(const Move *single, const char *section);

/* newer.c: tables that were made in shards while these were copied */

extern char *newer_tables(const Move *move, Shard *shard);
extern bool may_be_brought(const Move *single);
extern Status mend_after_errors(const Move *move, int64 *seen);
extern Status bring_new_tables(const Move *move);

/* copy.c: definitions, rows, and what is made of rows, out of one snapshot */

/* What fills a view runs as its owner, may read other views, and shows values as the database does. */
#define SETTINGS_OF_VIEWS \
	"SELECT set_config(name, reset_val, %s) FROM pg_settings WHERE name IN ('restrict_nonsystem_relation_kind', " \
	"'TimeZone', 'DateStyle', 'IntervalStyle', 'bytea_output', 'extra_float_digits', 'lc_monetary', 'xmlbinary', 'xmloption')"

extern char *copy_of(PGconn *to, char *copy);
extern Status copy_batch(const Move *move);
extern Status fill_views(const Move *move);

/* replication.c: publications, slots and subscriptions, made and dropped */

extern void publish(const Move *move);
extern void refresh(const Move *move, bool copies);
extern bool note_publishing(const Move *move, PGconn *conn);
extern bool publish_tables(const Move *move, PGconn *conn, const char *name, const char *tables);
extern bool unpublish(const Move *move, const char *tables);
extern bool extend_publication(const Move *move, const Side *side, const char *name);
extern bool make_room(const Move *move);
extern Status await_skipped(const Move *move);
extern Status take_out(const Move *move);
extern void create_slot(const Side *side, const char *name);
extern char *create_slot_with_snapshot(const Side *side, PGconn *conn, const char *name);
extern char *binary_tables(const Move *move, PGconn *conn);
extern Status reach_publication(const Move *move);
extern void subscribe(const Move *move);
extern void subscribe_back(const Move *move);
extern Status drop_slot(const Side *side, const char *name);
extern Status end_replication(const Side *from, const Side *to, const char *name);

/* set.c: what concerns the set as a whole */

extern Shard *shard_of_schema(const Move *move, const char *schema);
extern void measure_shards(const Move *move, const Side *side);
extern const char *waits_at_poolers(const Move *move);
extern void tell_moved(const Move *move, const Side *to, int pause_ms);
extern char *progress_of_set(const Move *move);
extern void leave_shard(const Move *move, Shard *shard);

/* shared.c: tables that foreign keys of shards lead to, alike on all servers */

extern PGresult *shared_tables(const Move *move);
extern char *any_lacking_rows(const Move *move, PGresult *tables, int64 until, bool is_pause);
extern Status await_shared_rows(const Move *move, PGresult *tables);

/* reason.c: what is being waited for */

extern void tell_workers(const Side *to, const char *name);
extern void tell_log_of(const Side *side);
extern PGresult *try_and_tell(const Side *side, PGconn *conn, PGconn *observer, const char *sql);
extern void tell_statements(const Move *move);
extern void tell_blockers(const Side *side, PGconn *observer, int pid);
extern void run_and_tell(const Side *side, PGconn *conn, PGconn *observer,
						 const char *fmt,...) pg_attribute_printf(4, 5);

/* follow.c: waiting for the other server */

extern Status check_slot(const Move *move, int64 max_wal);
extern Status check_following(const Move *move, int64 max_wal);
extern Status check_names(const Move *move);
extern int64 count_errors(const Side *to, const char *name, const char *kind);
extern Status wait_for_lag(const Move *move);
extern char *reader_of(const Move *move);

/* In place of a reader: the target need not have all that was there before. */
#define REWRITTEN	"rewritten"

extern void record_reader(const Move *move, const char *reader);
extern bool has_reader(const Move *move);
extern const char *why_doubtful(const Move *move);
extern bool wait_for_replay(const Move *move, int64 until);
extern void flush_log(const Side *side);
extern bool wait_for_standbys(const Side *side, int64 until);

/* pause.c: transactions that hold writers up */

extern void begin_limited(const Move *move, PGconn *conn, int lock_timeout_ms);
extern void begin_pause(const Move *move, const Side *side);
extern int64 pause_end(const Move *move, int64 start);
extern bool end_pause(const Move *move, const Side *side);
extern bool resume_session(const Move *move, const Side *side);
extern void tell_other_program(const Move *move);
extern void back_off(int attempt);

/* fence.c: what the fence needs beforehand */

extern void prepare_fence(const Move *move, const Side *side);
extern void remove_fence(const Move *move, const Side *side);

/* lock.c: taking a shard's locks */

extern bool lock_shard(const Move *move, const Side *side, const Shard *shard, bool again, int64 until);
extern bool close_locked_shards(const Move *move, const Side *side, const char *home, int64 until);

/* verify.c */

extern Status verify(const Move *move);
extern bool compare_tables(const Move *move, bool is_doubtful);

/* rowdiff.c */

extern int64 diff_rows(PGconn *const conns[2], const char *const schemas[2], const char *const words[3], const MoveOptions *options);

/* entries.c: the registry for PgBouncer */

extern const char *connect_error;	/* of the last connection that failed */

extern PGconn *connect_briefly_to(const char *conninfo, const char *user, const char *host, const char *port);

#define connect_briefly(conninfo, user)		connect_briefly_to(conninfo, user, NULL, NULL)
extern char *entry_of(const char *const *values);
extern const char *known_entry(const char *home, const char *user);
extern const char *registered_home(PGconn *registry, const Side *side);
extern const char *why_not_written(const Move *move, const Side *to, bool to_write);
extern int	print_route(const MoveOptions *options);

/* pooler.c: shards that go together; clients behind PgBouncer */

extern void tie_shards(const Move *move, bool only_keys);
extern const Move *by_pools(const Move *move);
extern int	whole_pools(const Move *move, int first, int count);
extern void fail_whole_pools(const Move *move);
extern int	first_group(const Move *move);
extern const char *prepare_pools(const Move *move, const Side *from, const Side *to);
extern const char *pause_pools(const Move *move, const Side *from, int64 until);
extern const char *check_paused(void);
extern void keep_paused(void);
extern bool resume_pools(const Move *move, const Side *from);
extern bool are_settled(const Move *move, const Side *from);
extern bool are_resumed(const Move *move, const Side *from);
extern void route_pools(const Move *move, const Side *from, const Side *to);
extern void route_late(const Move *move, const Side *from, const Side *to);
extern void settle_pools(const Move *set, bool is_split);

/* cutover.c */

extern Status hand_over(const Move *move);
extern Status open_decided(const Move *move);
extern void close_again(const Move *move);

/* clean.c: after the cut-over, and the two ends of a move */

extern void tell_publications(const Move *move);
extern Status clean_up_after(const Move *move, bool is_complete);
extern Status tell_registry(const Move *move);
extern Status check_owner(const Move *move, const Side *owner, const Side *copies, bool may_be_gone);
extern Status check_came(const Move *move);
extern bool schemas_are_of(const Side *side, const char *numbers, const char *names, const char *table);
extern Status check_copies(const Move *move, const Side *source);
extern Status drop_copies(const Move *move, const Side *source, bool throttled);
extern Status tell_copies(const Move *move, const Side *source);
extern Status finish(const Move *move);
extern Status finish_alone(const Move *move);
extern Status check_gone(const Move *move, const Side *side);
extern void turn(const Move *move);
extern void stay(const Move *move);
extern Status forget_copy(const Move *move);
extern Status abort_move(const Move *move);

#endif							/* STAGES_H */
