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
	int			(*run) (Move *move);
	bool		locks;			/* against other snowid-moves */
	bool		needs_source;	/* else it says what it can without it */
	bool		needs_target;
} Command;

/* status.c */

extern void swap_sides(Move *move);
extern int	command_status(Move *move);

/* commands.c */

extern const Command *find_command(const char *name);
extern bool may_be_on_way_back(const Move *move, const Side *reached);

/* options.c: exits by itself for --help, --version, and what is wrong */

extern const Command *parse_options(int argc, char *argv[], MoveOptions *options);

#endif							/* COMMANDS_H */
