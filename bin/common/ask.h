/*
 * One question to many servers, all at once, each with a limit.
 */
#ifndef ASK_H
#define ASK_H

#include "connection.h"

#include <pthread.h>
#include <signal.h>

typedef struct Server
{
	char	   *name;			/* NULL: only the registry has its home */
	const char *home;			/* NULL: where the directory is */
	const char *label;			/* for messages */
	const char *conninfo;
	const char *user;			/* the teller's, if ours is not let in */
	const char *teller;			/* that one */
	PGconn	   *conn;
	pthread_t	thread;			/* which makes it */
	bool		is_there;		/* of several hosts, one has refused us */
	bool		is_asked;
	PGresult   *answer;			/* of the last question; NULL: none came */
	char	   *trouble;		/* why not */
	char	   *place;			/* host, port and database */
	int			at;				/* the first that is at this place */
	int64		lags_until;		/* when to look again */
} Server;

#define ANSWER_MS	20000		/* what a server has for an answer */

/* Trouble begins so, if the server is not down. */
#define IT_ANSWERS	"it answers: "

extern volatile sig_atomic_t stopping;	/* Ctrl-C */

/* Most homes name no role: where ours is not let in, that of who told of them is tried. */
extern void ask_all(Server *servers, int nservers, const char *sql, int more_ms, PGconn *teller);

#endif							/* ASK_H */
