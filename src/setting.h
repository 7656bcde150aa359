/*
 * The setting snowid.shard, which next_id() without arguments reads.
 */
#ifndef SNOWID_SETTING_H
#define SNOWID_SETTING_H

/* snowid.shard, -1 where it is not set. */
extern int	snowid_shard;

/* Does this server's configuration file or command line say so? */
extern bool snowid_shard_is_of_server;

#endif							/* SNOWID_SETTING_H */
