/*
 * The commands: what is typed, and which stages that calls.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "stages.h"

/* A command returns what the program exits with. */
typedef struct Command
{
	const char *name;
	int			bit;
	int			(*run) (Move *move);	/* NULL: of no shard, run_alone */
	int			(*run_split) (Move *set);	/* for shards of a split; NULL:
											 * refuse */
	bool		locks;			/* against other snowid-moves */
	bool		needs_source;	/* else it says what it can without it */
	bool		needs_target;
	int			(*run_alone) (const MoveOptions *options);	/* without --shard, or
															 * not as a move */
} Command;

/* batch.c */

extern int	combine(int code, int other);
extern Move *select_allowed(const Move *move, int command, bool allowed);
extern int	for_each_situation(const Move *move, int (*run) (Move *part));
extern int	for_each_batch(const Move *set, int (*run) (Move *batch));
extern void name_batch(Move *batch);
extern Move *next_batch(const Move *move, int first);
extern bool is_whole(const Move *batch);
extern bool has_our_names(const Move *batch);

/* status.c */

extern const char *outlook(const Move *move);
extern const char *what_to_type(const Move *move, int i);
extern int	command_status(Move *move);
extern int	status_of_all(const MoveOptions *options);

/* split.c: the commands, as they are for the shards of a split */

extern bool is_split(const Move *set);
extern bool is_standby_of_source(const Move *set);
extern int	command_split(Move *set);
extern int	plan_split(Move *set);
extern int	status_of_split(Move *set);
extern int	abort_split(Move *set);
extern int	finish_split(Move *set);
extern int	refuse_split(Move *set);

/* audit.c */

extern int	command_audit(const MoveOptions *options);

/* restore.c */

extern int	command_copy(const MoveOptions *options);
extern int	command_restore(const MoveOptions *options);
extern int	command_undo(const MoveOptions *options);
extern int	finish_restore(const MoveOptions *options);

/* rowdiff.c */

extern int	command_diff(const MoveOptions *options);

/* erase.c */

extern int	command_erase(const MoveOptions *options);

/* commands.c */

extern const Command *find_command(const char *name);

/* snowid-move.c: a command of the shards that the options name */

extern int	run_on_sides(const Command *command, const MoveOptions *options);

/* options.c: exits by itself for --help, --version, and what is wrong */

extern const Command *parse_options(int argc, char *argv[], MoveOptions *options);

#endif							/* COMMANDS_H */
