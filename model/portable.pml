/*
 * The bound for readers in the portable edition, for spin: sessions that take ids of
 * one sequence, each by any branch of next_id(), and safe_upper_id().
 *
 * The claims: safe_upper_id() never passes an id of a transaction that is still open, or
 * of a later one; and what is taken under the lock rises.
 *
 *	model				portable/bodies.sql
 *	bulk, row, shared	next_id(): nextval() under the shared lock, in a transaction that
 *						has logged; in one without a number; and in any other
 *	alone				next_id(), take_slots(): setval() under the lock
 *	skip				next_id(): nextval() without the lock, up to the clock
 *	look, start			safe_upper_id(), after it has taken a slot like everybody
 *
 * Each atomic step is one after which others may come in between.  The clock's reading may be
 * anything, so it is guessed where it is used.  So is what a session remembers of earlier
 * transactions.  The shared lock, nextval() and the unlock are one step: while it is held,
 * others only fail to get theirs, as here they may at any time.
 *
 * A millisecond has SLOTS slots.  A -D flag removes a rule; the list is in ./run.
 */

#define SESSIONS	3			/* the last one calls safe_upper_id(), once */
#define READER		2
#define TIMES		2			/* the clock says 1 to TIMES */
#define SLOTS		2
#define LIMIT		(SLOTS * (TIMES + 1))	/* calls end here */

#define MAX(a, b)	((a) > (b) -> (a) : (b))
#define MIN(a, b)	((a) < (b) -> (a) : (b))

/* Is a slot that was counted of the clock's time, as it was read before? */
#ifdef NO_ROW_SLOT
#define ROW_FITS	true
#else
#define ROW_FITS	(last >= SLOTS * at)
#endif
#ifdef NO_SHARED_SLOT
#define SHARED_FITS	true
#else
#define SHARED_FITS	(last >= SLOTS * at)
#endif

/* Is a time that is before the transaction's start not taken? */
#ifdef NO_START
#define FROM(me)	1
#else
#define FROM(me)	start[me]
#endif

byte last = 1;					/* the sequence: behind the clock */
bool locked;					/* by one session alone */
byte top;						/* the largest slot taken under the lock */
byte bound;						/* what safe_upper_id() has returned */

/* Of each session's transaction, if it holds the relation's lock: */
byte start[SESSIONS];			/* 0: it does not */
byte low[SESSIONS];				/* its first id; 0: none yet */

inline count_one()
{
	last++;
	assert(last > top);
	top = last
}

/* The slot that was taken is an id now. */
inline give()
{
	assert(last >= bound);
	low[me] = (low[me] == 0 -> last : low[me]);
	seen_last = 0;
	at = 0;
	printf("session %d, begun at %d, takes %d\n", me, start[me], last)
}

/* A transaction begins at any time; what is read first locks the relation. */
inline look_at_last()
{
	if
	:: start[me] == 0 -> select (at : 1 .. TIMES); start[me] = at
	:: else
	fi;
	seen_last = last
}

/* Has last > 0 been seen, and no slot taken yet?  Then go on by any branch. */
inline next_id()
{
	atomic { look_at_last() }
	do
	:: atomic { !locked && last < LIMIT && !has_number && seen_last >= SLOTS * FROM(me) ->	/* row */
			select (at : FROM(me) .. seen_last / SLOTS);
			has_number = true;
			count_one();
			if
			:: ROW_FITS -> give(); break
			:: else -> at = 0
			fi }
	:: atomic { !locked && last < LIMIT && seen_last >= SLOTS * FROM(me) ->	/* shared */
			select (at : FROM(me) .. seen_last / SLOTS);
			has_logged = has_number;
			has_number = true;
			count_one();
			if
			:: SHARED_FITS -> give(); break
			:: else -> at = 0; seen_last = last
			fi }
	:: atomic { !locked ->				/* alone */
			locked = true;
			has_number = true;
			select (at : FROM(me) .. TIMES);
			set_last = MAX(last + 1, SLOTS * at);
			at = 0; seen_last = 0 }
		atomic { set_last <= LIMIT ->
			assert(set_last > top);
			last = set_last;
			top = last;
			set_last = 0;
			locked = false;
			give();
			break }
	:: atomic { seen_last < SLOTS * TIMES ->	/* skip */
			count = SLOTS * TIMES - seen_last;
			seen_last = 0 }
		do
		:: atomic { last < LIMIT && count > 1 -> last++; count-- }
		:: atomic { last < LIMIT -> last++; count = 0; look_at_last(); break }
		od
	:: atomic { seen_last != last -> seen_last = last }	/* the lock was not to be had */
	od
}

inline commit()
{
	low[me] = 0;
	start[me] = 0;
	has_logged = false;
	has_number = false
}

proctype session(byte me)
{
	byte at, seen_last, set_last, count;
	bool has_logged, has_number;

end:
	do
	:: next_id()
	:: atomic { has_logged && !locked && last < LIMIT ->	/* bulk */
			count_one();
			if
			:: give()
			:: true						/* behind the clock, as that is now */
			fi }
	:: atomic { start[me] > 0 -> commit() }
	od
}

inline look()
{
	d_step {
		held[0] = start[0] > 0;
		held[1] = start[1] > 0 }
}

inline start_of(other)
{
	atomic {
		if
		:: held[other] && start[other] > 0 -> mine = MIN(mine, SLOTS * start[other])
		:: else
		fi }
}

proctype reader(byte me)
{
	byte at, seen_last, set_last, count, mine;
	bool has_logged, has_number, held[2];

#ifdef NO_SLOT_FIRST
	look();
	next_id();
#else
	next_id();
	look();
#endif
	mine = low[me];
	start_of(0);
	start_of(1);
	atomic {
		bound = mine;
		printf("session %d says %d\n", me, bound);
		assert(low[0] == 0 || low[0] >= bound);
		assert(low[1] == 0 || low[1] >= bound) }
}

init
{
	atomic {
		run session(0);
		run session(1);
		run reader(READER) }
}
