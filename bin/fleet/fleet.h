/*
 * snowid-fleet: decides which shards live where, and has snowid-move do it.
 *
 * The truth is what the servers say when they are asked, and the tables of the directory; the program
 * keeps nothing.  So each command can be repeated, after whatever has ended it.
 */
#ifndef FLEET_H
#define FLEET_H

#include "connection.h"

#include <pthread.h>
#include <signal.h>
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
	int64		max_bytes;		/* 0: no limit */
	int64		max_lag;		/* -1: don't look */
	int			max_moves;
	int			at_once;		/* moves of a server */
	int			threshold;		/* percent */
	bool		dry_run;
	bool		keep;
	bool		json;
	char	  **for_move;		/* options for snowid-move */
	int			nfor_move;
	bool		has_pooler_file;	/* among these */
}			options;

typedef struct Server
{
	char	   *name;			/* NULL: only the registry has its home */
	char	   *home;			/* NULL: where the directory is */
	char	   *label;			/* for messages */
	PGconn	   *conn;
	pthread_t	thread;			/* which makes it */
	bool		is_asked;
	PGresult   *answer;			/* of the last question; NULL: none came */
	char	   *trouble;		/* why not */
	char	   *place;			/* host, port and database */
	int			at;				/* the first that is at this place */
	int64		lags_until;		/* when to look again */
} Server;

#define ANSWER_MS	20000		/* what a server has for an answer */
#define FLEET_LOCK	"1397641047, -3"	/* besides snowid-move's locks */

extern PGconn *directory;
extern Server *servers;
extern int	nservers;
extern volatile sig_atomic_t stopping;	/* Ctrl-C */
extern bool lock_fleet(bool makes_slots);
extern int	ask_servers(const char *period);
extern const char *registry_option(void);

/* The commands, with what is typed after them, or NULL. */
extern int	command_add(const char *name, const char *home);
extern int	command_retire(const char *name, const char *unused);
extern int	command_balance(const char *drained, const char *unused);
extern int	command_status(const char *unused, const char *unused_too);

#endif							/* FLEET_H */
