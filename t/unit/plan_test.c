/*
 * The plan of snowid-fleet, without servers: how even it gets, what that costs against the least that
 * any plan needs, how long it takes, and that it keeps every rule.
 *
 * The bound: from each server at least that must go which is more than what the plan leaves to the
 * fullest one.
 */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* port.h has them come from a library that there is no need to link. */
#undef printf
#undef snprintf
#undef qsort

static int	ntests = 0;
static int	nfailed = 0;

static void
ok(bool passed, const char *what)
{
	printf("%sok %d - %s\n", passed ? "" : "not ", ++ntests, what);
	nfailed += !passed;
}

static double
random_part(void)
{
	return random() / ((double) RAND_MAX + 1);
}

static int
by_load(const void *a, const void *b)
{
	const PlanPool *x = a;
	const PlanPool *y = b;

	return x->load < y->load ? 1 : x->load > y->load ? -1 : 0;
}

/* Pools by Zipf's law, each on a random server; so many first ones only on one of them. */
static PlanPool *
make_pools(int npools, int nservers, int crowded)
{
	PlanPool   *pools = calloc(npools, sizeof(PlanPool));

	for (int i = 0; i < npools; i++)
	{
		pools[i].load = pools[i].bytes = 1e12 / (1 + (i * 7919) % npools);
		pools[i].server = i < crowded ? 0 : (int) (random_part() * nservers);
	}
	qsort(pools, npools, sizeof(PlanPool), by_load);
	return pools;
}

static double
bytes_moved(const PlanPool *pools, int npools)
{
	double		bytes = 0;

	for (int i = 0; i < npools; i++)
		bytes += pools[i].to == pools[i].server ? 0 : pools[i].bytes;
	return bytes;
}

/* What a server should have at most: its part of all, or the largest pool if that is more. */
static double
share_of(const PlanServer *servers, int nservers, const PlanPool *pools, int npools, int server)
{
	double		all = 0,
				weights = 0,
				largest = 0;

	for (int s = 0; s < nservers; s++)
		weights += servers[s].drains ? 0 : servers[s].weight;
	for (int i = 0; i < npools; i++)
	{
		all += pools[i].load;
		largest = fmax(largest, pools[i].load);
	}
	return servers[server].drains ? 0 : fmax(all * servers[server].weight / weights, largest);
}

static double
load_of(const PlanPool *pools, int npools, int server, bool then)
{
	double		load = 0;

	for (int i = 0; i < npools; i++)
		load += (then ? pools[i].to : pools[i].server) == server ? pools[i].load : 0;
	return load;
}

/* How full the fullest server is, now or then; 1 is its share. */
static double
imbalance_of(const PlanServer *servers, int nservers, const PlanPool *pools, int npools, bool then)
{
	double		worst = 0;

	for (int s = 0; s < nservers; s++)
		if (load_of(pools, npools, s, then) > 0)
			worst = fmax(worst, load_of(pools, npools, s, then) / share_of(servers, nservers, pools, npools, s));
	return worst;
}

/* What must leave the servers, so that none is fuller than the fullest is then. */
static double
least_bytes(const PlanServer *servers, int nservers, const PlanPool *pools, int npools)
{
	double		worst = imbalance_of(servers, nservers, pools, npools, true);
	double		bytes = 0;

	for (int s = 0; s < nservers; s++)
		bytes += fmax(0, load_of(pools, npools, s, false) - worst * share_of(servers, nservers, pools, npools, s));
	return bytes;
}

static void
try_fleet(const char *name, int npools, int nservers, int crowded, const PlanServer *servers, double seconds)
{
	PlanPool   *pools = make_pools(npools, nservers, crowded);
	PlanLimits	limits = {.threshold = 5};
	clock_t		start = clock();
	double		took,
				least,
				moved,
				imbalance;
	char text[	200];

	make_plan(servers, nservers, pools, npools, &limits, true);
	took = (double) (clock() - start) / CLOCKS_PER_SEC;
	imbalance = imbalance_of(servers, nservers, pools, npools, true);
	moved = bytes_moved(pools, npools);
	least = least_bytes(servers, nservers, pools, npools);
	snprintf(text, sizeof(text), "%s: imbalance %.4f -> %.4f, bytes %.4f of the least, %.2f s", name,
			 imbalance_of(servers, nservers, pools, npools, false), imbalance, least > 0 ? moved / least : 1, took);
	ok(imbalance <= 1.05 && moved <= least * 1.15 && took <= seconds, text);
	free(pools);
}

/*
 * Other algorithms, for servers that are alike.  LPT: the largest pool to the emptiest server, as if nothing were
 * anywhere; then each server becomes the one of whose pools it has most.
 */
static void
plan_by_lpt(PlanPool *pools, int npools, int nservers)
{
	double		load[16] = {0},
				common[16][16] = {{0}};
	int			becomes[16] = {0};

	for (int i = 0; i < npools; i++)
	{
		int			best = 0;

		for (int s = 1; s < nservers; s++)
			best = load[s] < load[best] ? s : best;
		pools[i].to = best;
		load[best] += pools[i].load;
		common[best][pools[i].server] += pools[i].bytes;
	}
	for (int n = 0; n < nservers; n++)
	{
		int			a = 0,
					b = 0;

		for (int i = 0; i < nservers; i++)
			for (int j = 0; j < nservers; j++)
				if (common[i][j] > common[a][b])
				{
					a = i;
					b = j;
				}
		becomes[a] = b;
		for (int i = 0; i < nservers; i++)
			common[a][i] = common[i][b] = -1;
	}
	for (int i = 0; i < npools; i++)
		pools[i].to = becomes[pools[i].to];
}

/* Between the fullest server and the emptiest, the pool, or the two, that bring them nearest to each other; as even as ours. */
static void
plan_by_exchanges(PlanPool *pools, int npools, int nservers)
{
	int		   *there = calloc(npools + 1, sizeof(int));
	double		load[16] = {0},
				all = 0;

	for (int i = 0; i < npools; i++)
	{
		load[pools[i].to = pools[i].server] += pools[i].load;
		all += pools[i].load;
	}
	for (int n = 0; n < 10000; n++)
	{
		int			full = 0,
					empty = 0,
					nthere = 0,
					a = -1,
					b = -1;
		double		gap,
					best;

		for (int s = 1; s < nservers; s++)
		{
			full = load[s] > load[full] ? s : full;
			empty = load[s] < load[empty] ? s : empty;
		}
		best = gap = load[full] - load[empty];
		if (load[full] <= 1.002 * all / nservers)
			break;
		for (int i = 0; i < npools; i++)
			if (pools[i].to == empty)
				there[nthere++] = i;

		/*
		 * Both come with the largest first; at the end is none, for a pool
		 * alone.
		 */
		for (int i = 0, j = 0; i < npools; i++)
		{
			double		wanted = pools[i].load - gap / 2;
			double		other;

			if (pools[i].to != full)
				continue;
			while (j < nthere && fabs((j + 1 < nthere ? pools[there[j + 1]].load : 0) - wanted) <= fabs(pools[there[j]].load - wanted))
				j++;
			other = j < nthere ? pools[there[j]].load : 0;
			if (fabs(2 * (other - wanted)) < best * (1 - 1e-9))
			{
				best = fabs(2 * (other - wanted));
				a = i;
				b = j < nthere ? there[j] : -1;
			}
		}
		if (a < 0)
			break;
		gap = pools[a].load - (b < 0 ? 0 : pools[b].load);
		load[full] -= gap;
		load[empty] += gap;
		pools[a].to = empty;
		if (b >= 0)
			pools[b].to = full;
	}
	free(there);
}

/* None of them is as even for fewer bytes. */
static void
compare(const char *name, int crowded, const PlanServer *servers)
{
	static const char *const algorithms[] = {"ours", "LPT", "exchanges"};
	PlanPool   *pools = make_pools(8192, 16, crowded);
	PlanLimits	limits = {.threshold = 5};
	double		even[3],
				cost[3];
	char text[	300];

	make_plan(servers, 16, pools, 8192, &limits, true);
	for (int a = 0; a < 3; a++)
	{
		if (a == 1)
			plan_by_lpt(pools, 8192, 16);
		else if (a == 2)
			plan_by_exchanges(pools, 8192, 16);
		even[a] = imbalance_of(servers, 16, pools, 8192, true);
		cost[a] = bytes_moved(pools, 8192) / least_bytes(servers, 16, pools, 8192);
		snprintf(text, sizeof(text), "%s, %s: imbalance %.4f, bytes %.3f of the least", name, algorithms[a], even[a], cost[a]);
		ok(even[a] <= 1.05 && cost[a] >= cost[0], text);
	}
	free(pools);
}

static void
try_rules(void)
{
	PlanServer	servers[4] = {{1, true, false}, {1, true, false}, {1, true, false}, {1, true, false}};
	PlanLimits	limits = {.threshold = 5};
	PlanPool	pools[40];
	int			moves = 0,
				there[4] = {0};
	bool		fine = true;

	memset(pools, 0, sizeof(pools));
	for (int i = 0; i < 40; i++)
		pools[i].load = pools[i].bytes = 10;
	make_plan(servers, 4, pools, 40, &limits, true);
	ok(imbalance_of(servers, 4, pools, 40, true) < 1.001 && bytes_moved(pools, 40) == 300, "40 alike pools on one of four servers");

	for (int i = 0; i < 40; i++)
		pools[i].stays = i < 20;
	make_plan(servers, 4, pools, 40, &limits, true);
	for (int i = 0; i < 20; i++)
		fine = fine && pools[i].to == 0;
	ok(fine && fabs(bytes_moved(pools, 40) - 200) <= 10, "pinned pools stay");

	for (int i = 0; i < 20; i++)
		pools[i].stays = (pools[i].server = i > 0) == 0;
	pools[0].load = 600;
	make_plan(servers, 3, pools, 20, &limits, true);
	ok(fabs(load_of(pools, 20, 1, true) - load_of(pools, 20, 2, true)) <= 10 && fabs(bytes_moved(pools, 20) - 90) <= 10, "beside a pinned pool that is most of all, the rest is evened out");
	pools[0].load = 10;

	for (int i = 0; i < 40; i++)
	{
		pools[i].stays = false;
		pools[i].allowed = i < 5 ? "1000" : NULL;
		pools[i].apart = i >= 5 && i < 9 ? "1" : NULL;
		pools[i].server = i < 5 ? 1 : 0;
	}
	make_plan(servers, 4, pools, 40, &limits, true);
	for (int i = 0; i < 9; i++)
		if (i < 5)
			fine = fine && pools[i].to == 0;
		else
			fine = fine && there[pools[i].to]++ == 0;
	ok(fine, "some live only on the first, and four are apart");

	for (int i = 0; i < 40; i++)
		pools[i] = (PlanPool)
	{
		.load = 10,.bytes = 10
	};
	limits.max_moves = 3;
	make_plan(servers, 4, pools, 40, &limits, true);
	ok(bytes_moved(pools, 40) == 30, "at most three moves");
	limits.max_moves = 0;
	limits.max_bytes = 45;
	make_plan(servers, 4, pools, 40, &limits, true);
	ok(bytes_moved(pools, 40) == 40, "at most 45 bytes");
	limits.max_bytes = 0;

	servers[3].takes = false;
	make_plan(servers, 4, pools, 40, &limits, true);
	for (int i = 0; i < 40; i++)
		fine = fine && pools[i].to != 3;
	ok(fine, "a server that is full takes nothing");
	servers[3].takes = true;

	for (int i = 0; i < 40; i++)
		pools[i].server = i % 4;
	servers[2].drains = true;
	servers[2].takes = false;
	make_plan(servers, 4, pools, 40, &limits, false);
	for (int i = 0; i < 40; i++)
	{
		fine = fine && pools[i].to != 2 && (pools[i].server == 2 || pools[i].to == pools[i].server);
		moves += pools[i].to != pools[i].server;
	}
	ok(fine && moves == 10, "a server is drained, and nothing else moves");

	servers[0].takes = servers[1].takes = servers[3].takes = false;
	make_plan(servers, 4, pools, 40, &limits, false);
	for (moves = 0, fine = true; moves < 40; moves++)
		fine = fine && pools[moves].stuck == (pools[moves].server == 2);
	ok(fine, "what nothing takes is told");

	servers[2] = (PlanServer)
	{
		1, true, false
	};
	for (int i = 0; i < 40; i++)
		pools[i].load = pools[i].bytes = i == 0 ? 4 : i == 4 ? 20 : i == 3 ? 6 : 10;
	servers[0].takes = servers[1].takes = servers[3].takes = true;
	make_plan(servers, 4, pools, 40, &limits, true);
	ok(bytes_moved(pools, 40) == 0, "below the threshold nothing moves");
}

int
main(void)
{
	PlanServer	servers[256];
	struct rusage used;

	srandom(1);
	for (int s = 0; s < 256; s++)
		servers[s] = (PlanServer)
	{
		1, true, false
	};
	try_fleet("8,192 pools by Zipf, 16 servers", 8192, 16, 0, servers, 5);
	try_fleet("half of them on one server", 8192, 16, 4096, servers, 5);
	compare("anywhere", 0, servers);
	compare("half on one server", 4096, servers);
	try_fleet("256 servers", 8192, 256, 0, servers, 30);
	getrusage(RUSAGE_SELF, &used);
	ok(used.ru_maxrss < 200 * 1024, "in 200 MB");
	try_fleet("200 pools, 4 servers, one empty", 200, 4, 120, servers, 5);
	servers[3].weight = 3;
	servers[5].weight = 0.5;
	try_fleet("weights", 8192, 16, 0, servers, 5);
	servers[3].weight = servers[5].weight = 1;
	servers[7].drains = true;
	servers[7].takes = false;
	try_fleet("one of 16 is drained, the others are evened out", 8192, 16, 0, servers, 5);
	servers[7] = servers[0];
	try_rules();
	printf("1..%d\n", ntests);
	return nfailed > 0;
}
