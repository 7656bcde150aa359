/*
 * Which pools go to which servers.
 *
 * Pure: knows no server, so that t/unit/plan_test.c can try it with fleets that nobody has.
 */
#ifndef PLAN_H
#define PLAN_H

#include "c.h"

typedef struct PlanServer
{
	double		weight;			/* how much of the whole it should have */
	bool		takes;			/* it may get more */
	bool		drains;			/* it is to have nothing */
} PlanServer;

/* What moves as a whole. */
typedef struct PlanPool
{
	int			server;			/* where it is */
	double		load;			/* what is to be balanced */
	double		bytes;			/* what it costs to move it */
	bool		stays;
	const char *allowed;		/* for each server, '1' or '0'; NULL: all */
	const char *apart;			/* the same for each group that is apart */
	int			to;				/* the plan: where it is to be */
	bool		stuck;			/* it should go, and nothing takes it */
} PlanPool;

typedef struct PlanLimits
{
	int			threshold;		/* of an imbalance, in percent beyond 1 */
	int64		max_bytes;		/* 0 or less: none */
	int			max_moves;		/* 0: none */
} PlanLimits;

/*
 * Fill in "to" of all pools, which come with the largest load first.  What must leave its server goes first; with
 * "balances", then as little as possible, until no server has more than its share, or the largest pool if that is more.
 */
extern void make_plan(const PlanServer *servers, int nservers, PlanPool *pools, int npools,
					  const PlanLimits *limits, bool balances);

#endif							/* PLAN_H */
