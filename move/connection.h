/*
 * Connections: how a server is reached, by us and by the other server, and how
 * a session is set up.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "base.h"

/* One of the two servers. */
typedef struct Side
{
	const char *label;			/* "source" or "target", for messages */
	int			place;			/* of its row in a shard's journals */
	PGconn	   *conn;			/* holds the lock against other snowid-moves */
	PGconn	   *aux;			/* for what must not wait for conn */
	int			version;		/* as PQserverVersion */
	char	   *home;			/* host, port, dbname: what clients use */
	char	   *conninfo;		/* for the other server; never a password */
	char	   *password;		/* ... which a subscription may need; or NULL */
} Side;

/* conninfo.c */

extern char *without_password(const char *what, const char *conninfo);
extern char *conninfo_of_connection(PGconn *conn);
extern char *literal_for_subscription(PGconn *conn, const Side *publisher);
extern char *password_of(const char *conninfo);
extern char *home_of_connection(PGconn *conn);

/* connection.c */

/*
 * Each connection of the program is made by open_connection().  It returns one
 * that may have failed, as PQstatus() tells.
 */
extern PGconn *open_connection(const char *label, const char *conninfo);
extern bool reconnect(PGconn *conn);
extern bool open_side(Side *side, const char *conninfo, const char *for_other_server, bool needed);
extern void close_side(Side *side);

#endif							/* CONNECTION_H */
