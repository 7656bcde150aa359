/*
 * The commands: what is typed, and which stages that calls.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "stages.h"

/* The commands, as sets of those that have an option. */
#define OF_MOVE		(1 << 0)
#define OF_SPLIT	(1 << 1)
#define OF_PLAN		(1 << 2)
#define OF_STATUS	(1 << 3)
#define OF_ABORT	(1 << 4)
#define OF_BACK		(1 << 5)
#define OF_ROUTE	(1 << 6)
#define OF_FINISH	(1 << 7)

/* A command returns what the program exits with. */
typedef struct Command
{
	const char *name;
	int			bit;
	int			(*run) (Move *move);	/* NULL: print_route(), of no shard */
	int			(*run_split) (Move *set);	/* for shards of a split; NULL:
											 * refuse */
	bool		locks;			/* against other snowid-moves */
	bool		needs_source;	/* else it says what it can without it */
	bool		needs_target;
} Command;

/*
 * Where a shard is, by its two journals.  Not to be asked with only one of the
 * servers, but to tell shards apart.
 */
typedef enum Situation
{
	NOT_BEGUN = 1 << 0,
	COPYING = 1 << 1,			/* under way, not decided */
	DECIDED = 1 << 2,			/* not open yet */
	OPENED = 1 << 3,			/* not cleaned up after yet */
	MOVED = 1 << 4,
	ABORTING = 1 << 5,
	RETURNING = 1 << 6,			/* the same for the way back */
	RETURN_DECIDED = 1 << 7,
	RETURN_OPENED = 1 << 8,
	RETURNED = 1 << 9,
	RETURN_ABORTING = 1 << 10
} Situation;

/* batch.c */

extern int	combine(int code, int other);
extern Situation situation_of(const Move *move, Shard *shard);
extern Move *select_situations(const Move *move, int situations);
extern int	for_each_situation(const Move *move, int (*run) (Move *part));
extern int	for_each_batch(const Move *set, int (*run) (Move *batch));
extern void name_batch(Move *batch);
extern Move *next_batch(const Move *move, int first);
extern bool is_whole(const Move *batch);

/* status.c */

extern void swap_sides(Move *move);
extern const char *outlook(const Move *move);
extern int	command_status(Move *move);

/* split.c: the commands, as they are for the shards of a split */

extern bool is_split(const Move *set);
extern bool is_standby_of_source(const Move *set);
extern int	command_split(Move *set);
extern int	plan_split(Move *set);
extern int	status_of_split(Move *set);
extern int	abort_split(Move *set);
extern int	finish_split(Move *set);
extern int	refuse_split(Move *set);

/* commands.c */

extern const Command *find_command(const char *name);
extern bool may_be_on_way_back(const Move *move, const Side *reached);

/* options.c: exits by itself for --help, --version, and what is wrong */

extern const Command *parse_options(int argc, char *argv[], MoveOptions *options);

#endif							/* COMMANDS_H */
