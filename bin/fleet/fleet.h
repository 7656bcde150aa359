/*
 * snowid-fleet: decides which shards live where, and has snowid-move do it.
 *
 * The truth is what the servers say when they are asked, and the tables of the directory; the program
 * keeps nothing.  So each command can be repeated, after whatever has ended it.
 */
#ifndef FLEET_H
#define FLEET_H

#include "ask.h"
#include "plan.h"

#include <time.h>

extern struct Options
{
	const char *registry;
	const char *for_servers;	/* how they reach it; NULL: as we do */
	const char *by;
	const char *period;
	const char *weight;
	const char *note;
	const char *until;
	const char *html;
	PlanLimits	limits;
	int64		max_lag;		/* -1: don't look */
	int			at_once;		/* moves of a server */
	bool		dry_run;
	bool		keep;
	bool		trust_owners;
	bool		json;
	char	  **for_move;		/* options for snowid-move */
	int			nfor_move;
	bool		has_pooler_file;	/* among these */
}			options;

#define FLEET_LOCK	"1397641047, -3"	/* besides snowid-move's locks */

extern PGconn *directory;
#define here(text)	literal(directory, text)
extern Server *servers;
extern int	nservers;
extern bool lock_fleet(bool makes_slots);
extern void ask_servers(const char *period);
extern const char *registry_option(void);

/* The commands, with what is typed after them, or NULL. */
extern int	command_add(const char *name, const char *home);
extern int	command_retire(const char *name, const char *unused);
extern int	command_balance(const char *drained, const char *unused);
extern int	command_status(const char *unused, const char *unused_too);

#endif							/* FLEET_H */
