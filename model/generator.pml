/*
 * The generator's rules of durability and order, for spin.
 *
 * The claim: a value that next_id() gave to a transaction that committed is
 * never given again; and each call's value is larger than all that were given
 * in this run of the server, and than all such values of the runs before.  It
 * holds for any number of transactions, checkpoints, write-outs and crashes,
 * in any order of steps, and for any clock, until VALUES is reached.
 *
 * A value of a transaction that had not committed at a crash is not promised.
 * Nor is a value that core's nextval() gave, which lacks three of the rules.
 * README.md says what else the model leaves out.
 *
 *	model				src/: sequence.c, seq_page.c, slot.h PostgreSQL
 *	choose				lock_page(), slot_choose()			LockBuffer()
 *	mark dirty			sequence_next_slot()				MarkBufferDirty()
 *	decide				slot_cover()						GetRedoRecPtr()
 *	join				join_reservation(),					XLogNeedsFlush()
 *						reservation_is_durable()
 *	log, issue			write_page()						XLogInsert()
 *	commit														RecordTransactionCommit()
 *	a CORE session												nextval_internal()
 *	checkpointer												CreateCheckPoint(),
 *																BufferSync()
 *	write_out											FlushBuffer()
 *	crashes												StartupXLOG(), seq_redo()
 *
 * Each option of a do loop is one step, at which another process may come in
 * between.  What a session does to the page while it has the lock is joined to
 * the step before or after, since nobody could see the difference.
 *
 * An LSN counts sequence records, from BASE, the redo point of the last
 * completed checkpoint.  What is before it recovery never reads; all such LSNs
 * are 0.  So any number of records fits, and the states are finite.
 *
 * A -D flag removes a rule; the list is in ./run.
 */

#ifndef VALUES
#define VALUES		4			/* MAXVALUE: calls end here */
#endif
#ifndef AHEAD
#define AHEAD		2			/* SLOTS_LOGGED_AHEAD, and SEQ_LOG_VALS */
#endif
#ifndef SESSIONS
#define SESSIONS	3
#endif
#define CORE		(SESSIONS - 1)	/* the session that calls nextval */

#define BASE		1
#define NOBODY		SESSIONS

#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define MAX(a, b)	((a) > (b) -> (a) : (b))


/* -------- the rules, each of which a flag can remove -------- */

#ifdef NO_MAXIMUM
#define FIRST(now)		(now)
#else
#define FIRST(now)		MAX(page.last + 1, now)
#endif

#ifdef NO_LOCK
#define CAN_LOCK		true
#else
#define CAN_LOCK		(page_lock == NOBODY)
#endif

#ifdef NO_LOG_AHEAD
#define LOGGED(value)	(value)
#else
#define LOGGED(value)	COVERED(value)
#endif
#define COVERED(value)	MIN((value) + AHEAD, VALUES)

#ifdef NO_REDO_RULE
#define REDO_RULE		false
#elif defined(NO_EQUAL_REDO)
#define REDO_RULE		(page.lsn < redo_copy)
#else
#define REDO_RULE		(page.lsn <= redo_copy)
#endif

/* Ask for the redo point only when the page was clean. */
#ifdef TRUST_DIRTY
#define ASKS(me)		((me) == CORE || !s[me].was_dirty)
#else
#define ASKS(me)		true
#endif

#ifdef NO_XID
#define TAKES_XID		false
#else
#define TAKES_XID		true
#endif

/* What core's nextval lacks; a flag gives it to it. */
#ifdef NO_DIRTY_FIRST
#define DIRTY_FIRST(me)	false
#elif defined(CORE_DIRTY_FIRST)
#define DIRTY_FIRST(me)	true
#else
#define DIRTY_FIRST(me)	((me) != CORE)
#endif

#ifdef NO_JOIN
#define JOINS(me)		false
#elif defined(CORE_JOIN)
#define JOINS(me)		true
#else
#define JOINS(me)		((me) != CORE)
#endif

#ifdef NO_FILE_RULE
#define FILE_RULE(me)	false
#elif defined(CORE_FILE_RULE)
#define FILE_RULE(me)	true
#else
#define FILE_RULE(me)	((me) != CORE)
#endif

#ifdef CORE_PROMISE
#define IS_PROMISED(me)	true
#else
#define IS_PROMISED(me)	((me) != CORE)
#endif


/* -------- the state -------- */

/* The sequence's page: in shared buffers, and on disk. */
typedef Page
{
	byte		last;			/* last_value */
	byte		log_cnt;
	byte		lsn
};
Page page, disk;
bool dirty;
byte page_lock = NOBODY;

/*
 * The log.  A record stands at the index of the LSN at which it ends.  Each
 * that counts was logged for a larger value; NO_MAXIMUM needs some more room.
 */
#define RECORDS		(BASE + VALUES + 2 + EXTRA_RECORDS)
#ifdef NO_MAXIMUM
#define EXTRA_RECORDS	8
#else
#define EXTRA_RECORDS	0
#endif
byte wal_last[RECORDS];
byte wal_log_cnt[RECORDS];
byte wal_end = BASE;			/* end of the last record inserted */
byte wal_flushed = BASE;

/* The checkpoint that is under way. */
mtype = { NONE, REDO_CHOSEN, REDO_PUBLISHED, SCANNED };
mtype checkpoint = NONE;
byte redo = BASE;				/* XLogCtl->Insert.RedoRecPtr */
byte redo_copy = BASE;			/* XLogCtl->RedoRecPtr */
bool checkpoint_needed;			/* the page's BM_CHECKPOINT_NEEDED */

/* The sessions, each with its call and its transaction. */
mtype = { REST, CHOSEN, CLEAN, DECIDED, COMMITTING };
typedef Session
{
	mtype		step = REST;
	bool		logged_file;	/* this session has logged this file */

	/* the call */
	byte		value;			/* what it will return */
#ifdef TRUST_DIRTY
	bool		was_dirty;
#endif
	bool		must_log;
	byte		log_cnt;		/* what it will leave on the page */

	/* the transaction */
	bool		has_xid;
	bool		wrote_wal;		/* XactLastRecEnd is set */
	bool		has_watched;	/* it was given the watched value */
	byte		commit_lsn		/* end of all before its commit record */
};
Session s[SESSIONS];

/*
 * The claim's state.  One value is watched, from when it is issued; spin
 * tries each.
 */
byte watched;
bool watched_issued;			/* ... in this run of the server */
bool watched_promised;			/* ... to a transaction that committed */

#define IS_GIVEN	(watched_issued || watched_promised)

byte i;							/* loops within one step, else 0 */


/* -------- pieces of steps -------- */

inline flush(upto)
{
	wal_flushed = MAX(wal_flushed, upto)
}

/* WAL before data. */
inline write_out()
{
	flush(page.lsn);
	disk.last = page.last;
	disk.log_cnt = page.log_cnt;
	disk.lsn = page.lsn;
	dirty = false;
	checkpoint_needed = false;
	printf("page %d, log_cnt %d is written out\n", disk.last, disk.log_cnt)
}

inline check_claim(me)
{
	assert(!(IS_GIVEN && s[me].value == watched));	/* a repeat */
#ifndef REPEATS_ONLY
	assert(!(IS_GIVEN && s[me].value < watched));	/* an order break */
#endif
}

inline watch(me)
{
	if
	:: !IS_GIVEN ->
		watched = s[me].value;
		watched_issued = true;
		s[me].has_watched = IS_PROMISED(me)
	:: true
	fi
}

inline end_call(me)
{
	s[me].value = 0;
#ifdef TRUST_DIRTY
	s[me].was_dirty = false;
#endif
	s[me].must_log = false;
	s[me].log_cnt = 0;
	s[me].step = REST
}

inline end_transaction(me)
{
	s[me].has_xid = false;
	s[me].wrote_wal = false;
	s[me].has_watched = false;
	s[me].commit_lsn = 0;
	s[me].step = REST
}

inline acknowledge(me)
{
	watched_promised = watched_promised || s[me].has_watched;
	end_transaction(me);
	printf("session %d: has committed\n", me)
}

/* Let LSNs count from the redo point of the checkpoint just completed. */
#define REBASED(x)	((x) < redo -> 0 : (x) - redo + BASE)

inline rebase()
{
	i = BASE + 1;
	do
	:: i <= wal_end ->
		if
		:: i + redo - BASE <= wal_end ->
			wal_last[i] = wal_last[i + redo - BASE];
			wal_log_cnt[i] = wal_log_cnt[i + redo - BASE]
		:: else ->
			wal_last[i] = 0;
			wal_log_cnt[i] = 0
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < SESSIONS ->
		s[i].commit_lsn = REBASED(s[i].commit_lsn);
		i++
	:: else -> break
	od;
	i = 0;
	page.lsn = REBASED(page.lsn);
	disk.lsn = REBASED(disk.lsn);
	wal_flushed = REBASED(wal_flushed);
	wal_end = REBASED(wal_end);
	redo = BASE;
	redo_copy = BASE
}


/* -------- the processes -------- */

proctype session(byte me)
{
	byte		now;

	do
	/* Choose, by the page and the clock; mark dirty. */
	:: atomic
		{
			s[me].step == REST && CAN_LOCK && page.last < VALUES ->
			page_lock = me;
			if
			:: me == CORE ->
				s[me].value = page.last + 1
			:: me != CORE ->
				select(now : 1 .. VALUES);
				s[me].value = FIRST(now);
				now = 0
			fi;
#ifdef TRUST_DIRTY
			s[me].was_dirty = dirty;
#endif
			dirty = dirty || DIRTY_FIRST(me);
			s[me].step = CHOSEN;
			printf("session %d: finds %d, log_cnt %d; chooses %d\n",
				   me, page.last, page.log_cnt, s[me].value)
		}

	/* Decide, by the redo point. */
	:: atomic
		{
			s[me].step == CHOSEN ->
			s[me].must_log = s[me].value > page.last + page.log_cnt ||
				(FILE_RULE(me) && !s[me].logged_file) ||
				(ASKS(me) && REDO_RULE);
			if
			:: s[me].must_log ->
				s[me].log_cnt = COVERED(s[me].value) - s[me].value;
				s[me].logged_file = FILE_RULE(me)
			:: else ->
				s[me].log_cnt = page.last + page.log_cnt - s[me].value
			fi;
			s[me].step = (DIRTY_FIRST(me) -> DECIDED : CLEAN);
			printf("session %d: page LSN %d, redo point %d; must log: %d\n",
				   me, page.lsn, redo_copy, s[me].must_log)
		}

	/* Mark dirty, in core's order. */
	:: atomic
		{
			s[me].step == CLEAN ->
			dirty = true;
			s[me].step = DECIDED
		}

	/*
	 * Log, or join a reservation; write the page, unlock it, issue.  What a
	 * transaction waits for matters only if it will promise something.
	 */
	:: atomic
		{
			s[me].step == DECIDED ->
			if
			:: s[me].must_log ->
				wal_end++;
				wal_last[wal_end] = LOGGED(s[me].value);
				wal_log_cnt[wal_end] = 0;
				page.lsn = wal_end;
				s[me].has_xid = s[me].has_xid ||
					(TAKES_XID && IS_PROMISED(me));
				s[me].wrote_wal = IS_PROMISED(me);
				printf("session %d: logs %d\n", me, wal_last[wal_end])
			:: !s[me].must_log && JOINS(me) && page.lsn > wal_flushed ->
				s[me].has_xid = IS_PROMISED(me);
				s[me].wrote_wal = IS_PROMISED(me)
			:: else
			fi;
			page.last = s[me].value;
			page.log_cnt = s[me].log_cnt;
			page_lock = NOBODY;

			printf("session %d: issues %d\n", me, s[me].value);
			check_claim(me);
			watch(me);
			end_call(me)
		}

	/* Commit: only WAL and a transaction id make it wait for a flush. */
	:: atomic
		{
			s[me].step == REST && s[me].has_xid && s[me].wrote_wal ->
			s[me].commit_lsn = wal_end;
			s[me].step = COMMITTING;
			printf("session %d: commits, needs WAL up to %d\n", me, wal_end)
		}
	:: atomic
		{
			s[me].step == COMMITTING ->
			flush(s[me].commit_lsn);
			acknowledge(me)
		}
	:: atomic
		{
			s[me].step == REST && !(s[me].has_xid && s[me].wrote_wal) &&
				(s[me].has_watched || s[me].wrote_wal) ->
			acknowledge(me)
		}

	/* Roll back; or commit with synchronous_commit off. */
	:: atomic
		{
			s[me].step == REST && (s[me].has_watched || s[me].wrote_wal) ->
			end_transaction(me);
			printf("session %d: rolls back\n", me)
		}

	/* Disconnect, for another session to come. */
	:: atomic
		{
			s[me].step == REST && s[me].logged_file ->
			end_transaction(me);
			s[me].logged_file = false;
			printf("session %d: disconnects\n", me)
		}
	od
}

proctype checkpointer()
{
	do
	/* The redo point is set under the WAL insertion locks ... */
	:: atomic
		{
			checkpoint == NONE ->
			redo = wal_end;
			checkpoint = REDO_CHOSEN
		}
	/* ... and copied later to where GetRedoRecPtr() looks. */
	:: atomic
		{
			checkpoint == REDO_CHOSEN ->
			redo_copy = redo;
			checkpoint = REDO_PUBLISHED;
			printf("checkpoint: redo point is %d\n", redo)
		}
	/* The scan for dirty pages takes no page's lock ... */
	:: atomic
		{
			checkpoint == REDO_PUBLISHED ->
			checkpoint_needed = dirty;
			checkpoint = SCANNED;
			printf("checkpoint: page is dirty: %d\n", checkpoint_needed)
		}
	/* ... writing one does. */
	:: atomic
		{
			checkpoint == SCANNED && checkpoint_needed && CAN_LOCK ->
			write_out()
		}
	/* The record is flushed, the control file names it. */
	:: d_step
		{
			checkpoint == SCANNED && !checkpoint_needed ->
			flush(wal_end);
			rebase();
			checkpoint = NONE;
			printf("checkpoint: is complete; its redo point is now %d\n", BASE)
		}
	od
}

/* The background writer, the WAL writer, and whatever else flushes. */
proctype writers()
{
	do
	:: atomic { dirty && CAN_LOCK -> write_out() }
	:: atomic { wal_flushed < wal_end -> wal_flushed++ }
	od
}

proctype crashes()
{
	byte		survives;		/* end of the WAL that recovery finds */

	do
	:: atomic
		{
			/* Any part of the unflushed WAL may have reached the disk ... */
			select(survives : wal_flushed .. wal_end);
			printf("crash: WAL up to %d survives\n", survives);

			/* ... with a commit record, whether acknowledged or not. */
			i = 0;
			do
			:: i < SESSIONS ->
				watched_promised = watched_promised ||
					(s[i].has_watched && s[i].step == COMMITTING &&
					 s[i].commit_lsn <= survives);
				end_call(i);
				end_transaction(i);
				s[i].logged_file = false;
				i++
			:: else -> break
			od;
			watched_issued = false;
			watched = (watched_promised -> watched : 0);
			page_lock = NOBODY;
			checkpoint = NONE;
			checkpoint_needed = false;
			redo = BASE;
			redo_copy = BASE;
			do
			:: wal_end > survives ->
				wal_last[wal_end] = 0;
				wal_log_cnt[wal_end] = 0;
				wal_end--
			:: else -> break
			od;
			wal_flushed = wal_end;

			/*
			 * Replay: each record makes the page anew, whatever its LSN.  The
			 * checkpoint that ends a crash recovery, but not a promotion, is
			 * the checkpointer's, when it is the next to move.
			 */
			page.last = disk.last;
			page.log_cnt = disk.log_cnt;
			page.lsn = disk.lsn;
			dirty = false;
			i = BASE + 1;
			do
			:: i <= wal_end ->
				page.last = wal_last[i];
				page.log_cnt = wal_log_cnt[i];
				page.lsn = i;
				dirty = true;
				i++
			:: else -> break
			od;
			i = 0;
			survives = 0;
			printf("recovery: finds %d, log_cnt %d\n", page.last, page.log_cnt)
		}
	od
}

init
{
	atomic
	{
		/*
		 * The sequence is new; or its file is a copy, logged with the log_cnt
		 * that it had where it was copied from.
		 */
		if
		:: true
		:: true ->
			wal_end = BASE + 1;
			wal_flushed = wal_end;
			wal_log_cnt[wal_end] = AHEAD;
			page.log_cnt = AHEAD;
			page.lsn = wal_end;
			dirty = true;
			printf("the file is a copy, with log_cnt %d\n", AHEAD)
		fi;

		do
		:: i < SESSIONS -> run session(i); i++
		:: else -> break
		od;
		i = 0;
		run checkpointer();
		run writers();
		run crashes()
	}
}
