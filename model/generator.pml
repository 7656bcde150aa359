/*
 * The rules of durability and order, for spin: one sequence, and what is
 * reserved in its database.
 *
 * The claim: a value that next_id() gave to a transaction that committed is
 * never given again; and each call's value is larger than all that were given
 * in this run of the server, and than all such values of the runs before.  It
 * holds for any number of transactions, checkpoints, write-outs, crashes,
 * backups and fail-overs, in any order of steps, and for any time of day,
 * until VALUES is reached.
 *
 * With RIGHT_CLOCK, the time of day only rises, and a tick is a millisecond.  The
 * claim is then also that what is reserved is never more than AHEAD ticks beyond it,
 * and the one that a call has waited for.
 *
 * A value of a transaction that had not committed at a crash is not promised.
 * README.md says what else the model leaves out.
 *
 *	model				src/: sequence.c, reservation.c, slot.h	PostgreSQL
 *	look				forgotten_floor()
 *	choose				lock_page(), slot_choose()			LockBuffer()
 *	mark dirty			choose_and_lock()					MarkBufferDirty()
 *	decide				slot_cover()						GetRedoRecPtr()
 *	move				reserve(), reservation_next()		XLogInsert()
 *	issue				join_record(), write_page()			XLogNeedsFlush(),
 *																XLogInsert()
 *	commit													RecordTransactionCommit(),
 *																SyncRepWaitForLSN()
 *	others				reserve(), early and for all other sequences;
 *																SetSequence(), ResetSequence()
 *	checkpointer											CreateCheckPoint(),
 *																BufferSync()
 *	write_out												FlushBuffer()
 *	standby												WalReceiverMain(), seq_redo()
 *	crashes												StartupXLOG(), seq_redo()
 *
 * Each option of a do loop is one step, at which another process may come in
 * between.  What a session does under a page's lock is joined to the step before
 * or after, where nobody could see the difference.
 *
 * A value stands for a slot and for its time.  An LSN counts records, from BASE,
 * the redo point of the last completed checkpoint.  What is before it recovery
 * never reads; all such LSNs are 0.  So any number of records fits, and the
 * states are finite.
 *
 * A -D flag removes a rule; the list is in ./run.
 */

#ifndef VALUES
#define VALUES		3			/* MAXVALUE: calls end here */
#endif
#ifndef SESSIONS
#define SESSIONS	2
#endif

#define BASE		1
#define NOBODY		SESSIONS

#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define MAX(a, b)	((a) > (b) -> (a) : (b))


/* -------- the rules, each of which a flag can remove -------- */

#ifdef NO_MAXIMUM
#define LAST			0
#else
#define LAST			page.last
#endif

#ifdef NO_FLOOR
#define FLOOR(me)		0
#else
#define FLOOR(me)		s[me].floor
#endif

#ifdef NO_LOCK
#define CAN_LOCK		true
#else
#define CAN_LOCK		(page_lock == NOBODY)
#endif

/* Slots up to the reserved time, but not of it: that is the next floor. */
#ifdef NO_STRICT
#define BELOW			<=
#else
#define BELOW			<
#endif

#ifdef NO_REDO_RULE
#define AFTER_REDO(x)	true
#elif defined(NO_EQUAL_REDO)
#define AFTER_REDO(x)	((x) >= redo_copy)
#else
#define AFTER_REDO(x)	((x) > redo_copy)
#endif

#ifdef NO_DIRTY_FIRST
#define DIRTY_FIRST		false
#else
#define DIRTY_FIRST		true
#endif

/* What replay leaves in the reservation's page: a page in use, or not. */
#ifdef NO_RECOGNITION
#define REPLAYED		LIVE
#else
#define REPLAYED		STALE
#endif

/* The floor, for sessions that come after the one that has moved it. */
#ifdef NO_KEPT_FLOOR
#define KEPT(floor)		0
#else
#define KEPT(floor)		(floor)
#endif

#ifdef NO_MARK
#define IS_LIVE(state)	((state) != STALE)
#else
#define IS_LIVE(state)	((state) == LIVE)
#endif

#ifdef STANDBY
#define RECEIVED(x)		((x) <= standby.lsn)
#else
#define RECEIVED(x)		true
#endif

#ifdef NO_JOIN
#define IS_DURABLE(x)	true
#elif defined(NO_JOIN_STANDBY)
#define IS_DURABLE(x)	((x) <= wal_flushed)
#else
#define IS_DURABLE(x)	((x) <= wal_flushed && RECEIVED(x))
#endif

#ifdef NO_XID
#define TAKES_XID		false
#else
#define TAKES_XID		true
#endif

/*
 * Replay of a page's record sets the page back below slots that an earlier
 * reservation covers.  So there must be a later one.
 */
#ifdef NO_AFTER_PAGE
#define AFTER_PAGE(x)	true
#else
#define AFTER_PAGE(x)	((x) > page.lsn)
#endif

/* What a session has logged for its sequence alone, up to where it says. */
#ifdef NO_OWN_BOUND
#define IN_OWN(me)		true
#else
#define IN_OWN(me)		(s[me].value <= s[me].own)
#endif

/* ... which counts until somebody else logs the page, here by forgetting it. */
#ifdef NO_OWN_LAST
#define FORGETS_OWN		false
#else
#define FORGETS_OWN		true
#endif

#ifdef NO_OWN_REDO
#define OWN_AFTER_REDO(x)	true
#else
#define OWN_AFTER_REDO(x)	AFTER_REDO(x)
#endif

#ifdef NO_OWN_JOIN
#define OWN_IS_DURABLE(x)	true
#else
#define OWN_IS_DURABLE(x)	IS_DURABLE(x)
#endif

/* A sequence that has forgotten starts above all that is reserved. */
#ifdef NO_FORGOTTEN_FLOOR
#define ABOVE(me)		0
#else
#define ABOVE(me)		s[me].above
#endif

/* ... that is: by anybody, not by what the session knows. */
#ifdef NO_FORGOTTEN_SEEN
#define SEEN(me)		MAX(s[me].reserved, s[me].floor)
#else
#define SEEN(me)		reservation.reserved
#endif

/* Beyond what the clock allows, a tick that was waited for allows one more. */
#ifdef NO_PUSH_WAIT
#define HAS_WAITED(me)	true
#else
#define HAS_WAITED(me)	(s[me].since > 0 && time > s[me].since)
#endif

/* The time to reserve, as the clock allows it, whatever is asked for. */
#define AHEAD		1
#ifdef NO_FOLLOW
#define NEXT(value)		MAX(reservation.reserved, (value) + AHEAD)
#else
#define NEXT(value)		MAX(reservation.reserved, time + AHEAD)
#endif

#ifdef NO_PAGE_RECORD
#define PAGE_RECORD		false
#else
#define PAGE_RECORD		true
#endif


/* -------- the state -------- */

/*
 * The reservation's page.  LIVE: log_cnt has the floor, and the mark of this page;
 * STALE: log_cnt is 0; COPIED: log_cnt has the mark of another page.  Of one
 * that is not live, the reserved time is the floor.
 */
mtype = { LIVE, STALE, COPIED };

#ifdef RIGHT_CLOCK
byte time = 1;
#endif
#ifdef RESTART
bool is_rewritten;				/* has it been restarted? */
#define IS_FORGOTTEN	(is_rewritten && page.last == 0)
#define AT_REST(n)		(s[n].step == REST && !s[n].waits && !s[n].has_watched && \
						 !s[n].has_looked && s[n].since == 0)
#else
#define IS_FORGOTTEN	false
#endif

/* The two pages, in shared buffers, on disk, and on the standby. */
typedef Sequence
{
	byte		last;			/* last_value */
	byte		lsn
};
typedef Reservation
{
	byte		reserved;		/* W */
	byte		floor;			/* F; 0 if the page is not live */
	mtype		state = STALE;
	byte		lsn
};
Sequence page;
Reservation reservation;
bool dirty;
bool reservation_dirty;
byte page_lock = NOBODY;

byte disk_last;
byte disk_reserved;
byte disk_floor;
mtype disk_state = STALE;

/* Written since the redo point, so that a power cut may have torn it. */
bool may_be_torn;

/* The standby's pages, as it has replayed them, and what it has received. */
typedef Standby
{
	byte		last;
	byte		reserved;
	byte		floor;
	mtype		state = STALE;
	byte		lsn = BASE
};
Standby standby;

/* The log.  A record stands at the index of the LSN at which it ends. */
#define RECORDS		(BASE + 2 * VALUES + 8)
mtype = { NOTHING, OF_RESERVATION, OF_PAGE, COPY_OF_RESERVATION };
mtype wal_kind[RECORDS] = NOTHING;
byte wal_value[RECORDS];
byte wal_end = BASE;			/* end of the last record inserted */
byte wal_flushed = BASE;

/* The checkpoint that is under way. */
mtype = { NONE, REDO_CHOSEN, REDO_PUBLISHED, SCANNED };
mtype checkpoint = NONE;
byte redo = BASE;				/* XLogCtl->Insert.RedoRecPtr */
byte redo_copy = BASE;			/* XLogCtl->RedoRecPtr */
bool checkpoint_needed;			/* the page's BM_CHECKPOINT_NEEDED */
bool reservation_checkpoint_needed;

/* The sessions, each with its call and its transaction. */
mtype = { REST, CHOSEN, MOVING, DECIDED, COMMITTING };
typedef Session
{
	mtype		step = REST;

	/* what it remembers of the reservation */
	bool		knows;
	byte		reserved;
	byte		lsn;
	byte		floor;

	/* what it has logged for the sequence alone, and the record */
	byte		own;
	byte		own_lsn;

	/* the call */
	byte		value;			/* what it will return */
	bool		has_looked;		/* what was reserved, for a restarted sequence: */
	byte		above;
	byte		since;			/* RIGHT_CLOCK: it waits since then */
	bool		is_alone;		/* it logs this value for the sequence alone */
	bool		logs_page;		/* the page's first change after the redo point */

	/* the transaction */
	bool		waits;			/* it has an id, and has written or joined */
	bool		has_watched;	/* it was given the watched value */
	byte		commit_lsn		/* end of all before its commit record */
};
Session s[SESSIONS];

/*
 * With FEW, all that two sessions can do comes before so many crashes, mostly one,
 * and one of them looks what the last has left.
 */
#ifdef FEW
byte crash_count;
#define BEFORE_CRASH	(crash_count < FEW)
#else
#define BEFORE_CRASH	true
#endif

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

inline log(what, number)
{
	wal_end++;
	wal_kind[wal_end] = what;
	wal_value[wal_end] = number
}

/* WAL before data. */
inline write_out()
{
	flush(page.lsn);
#ifdef TORN
	may_be_torn = may_be_torn || disk_last != page.last;
#endif
	disk_last = page.last;
	dirty = false;
	checkpoint_needed = false;
	printf("page %d is written out\n", disk_last)
}

inline write_reservation_out()
{
	flush(reservation.lsn);
	disk_reserved = reservation.reserved;
	disk_floor = reservation.floor;
	disk_state = reservation.state;
	reservation_dirty = false;
	reservation_checkpoint_needed = false;
	printf("reservation %d is written out\n", disk_reserved)
}

/* Reserve up to the given time, or a later one. */
inline reserve(new)
{
#ifdef RIGHT_CLOCK
	assert(new <= time + AHEAD + 1);		/* a lead */
#else
	do
	:: new < VALUES + 1 -> new++
	:: break
	od;
#endif
	reservation.floor = KEPT((IS_LIVE(reservation.state) -> reservation.floor : reservation.reserved));
	reservation.reserved = new;
	reservation.state = LIVE;
	reservation_dirty = true;
	log(OF_RESERVATION, new);
	reservation.lsn = wal_end;
	printf("reserved up to %d, floor %d, as record %d\n", new, reservation.floor, wal_end);
	new = 0
}

inline remember(me)
{
	s[me].knows = true;
	if
	:: IS_LIVE(reservation.state) ->
		s[me].reserved = reservation.reserved;
		s[me].lsn = reservation.lsn;
		s[me].floor = reservation.floor
	:: else ->
		s[me].reserved = 0;
		s[me].lsn = 0;
		s[me].floor = reservation.reserved
	fi
}

/* Replay one record onto a copy of the pages. */
inline replay(n, last_, reserved_, floor_, state_)
{
	if
	:: wal_kind[n] == OF_PAGE ->
		last_ = wal_value[n]
	:: wal_kind[n] == OF_RESERVATION ->
		reserved_ = wal_value[n];
		state_ = REPLAYED;
		floor_ = (REPLAYED == LIVE -> floor_ : 0)
	:: wal_kind[n] == COPY_OF_RESERVATION ->
		reserved_ = wal_value[n];
		state_ = COPIED;
		floor_ = 0
	:: else
	fi
}

/* Somebody has logged the page. */
inline forget_own()
{
	i = 0;
	do
	:: i < SESSIONS ->
		if
		:: FORGETS_OWN ->
			s[i].own = 0;
			s[i].own_lsn = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
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
		s[me].has_watched = true
	:: true
	fi
}

inline end_call(me)
{
	s[me].value = 0;
	s[me].is_alone = false;
	s[me].logs_page = false;
	s[me].step = REST
}

inline end_transaction(me)
{
	s[me].waits = false;
	s[me].has_watched = false;
	s[me].commit_lsn = 0;
	s[me].step = REST
}

inline forget_reservation(me)
{
	s[me].knows = false;
	s[me].reserved = 0;
	s[me].lsn = 0;
	s[me].floor = 0;
	s[me].own = 0;
	s[me].own_lsn = 0;
	s[me].has_looked = false;
	s[me].above = 0;
	s[me].since = 0
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
			wal_kind[i] = wal_kind[i + redo - BASE];
			wal_value[i] = wal_value[i + redo - BASE]
		:: else ->
			wal_kind[i] = NOTHING;
			wal_value[i] = 0
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < SESSIONS ->
		s[i].commit_lsn = REBASED(s[i].commit_lsn);
		s[i].lsn = REBASED(s[i].lsn);
		s[i].own_lsn = REBASED(s[i].own_lsn);
		s[i].own = (s[i].own_lsn > 0 -> s[i].own : 0);
		i++
	:: else -> break
	od;
	i = 0;
	page.lsn = REBASED(page.lsn);
	reservation.lsn = REBASED(reservation.lsn);
	wal_flushed = REBASED(wal_flushed);
	wal_end = REBASED(wal_end);
#ifdef STANDBY
	standby.lsn = REBASED(standby.lsn);
#endif
	redo = BASE;
	redo_copy = BASE
}


/* -------- the processes -------- */

proctype session(byte me)
{
	byte		now;

	do
#ifdef RESTART
	/* Look what is reserved, before a restarted sequence gives its first value. */
	:: atomic
		{
			s[me].step == REST && IS_FORGOTTEN && !s[me].has_looked &&
				(BEFORE_CRASH || me == 0) ->
			if
			:: !s[me].knows -> remember(me)
			:: else
			fi;
			s[me].has_looked = true;
			s[me].above = SEEN(me);
			printf("session %d: starts from %d\n", me, s[me].above)
		}
#endif

	/* Choose, by the page, the floor and the time of day; mark dirty. */
	:: atomic
		{
			s[me].step == REST && CAN_LOCK && page.last < VALUES &&
				(!IS_FORGOTTEN || s[me].has_looked) && (BEFORE_CRASH || me == 0) ->
			if
			:: !s[me].knows -> remember(me)
			:: else
			fi;
			page_lock = me;
#ifdef RIGHT_CLOCK
			now = time;
#else
			select(now : 1 .. VALUES);
#endif
			s[me].value = MAX(MAX(LAST + 1, FLOOR(me)), MAX(now, ABOVE(me)));
			now = 0;
			if
			:: s[me].value > VALUES ->
				page_lock = NOBODY;
				end_call(me)
			:: else ->
				dirty = dirty || DIRTY_FIRST;
				s[me].step = CHOSEN;
				printf("session %d: finds %d, floor %d; chooses %d\n",
					   me, page.last, s[me].floor, s[me].value)
			fi
		}

	/*
	 * Decide, by what it remembers of the reservation, the page's record and the redo
	 * point.  Without a reservation it goes alone, as a sequence that is far
	 * ahead does, and a call that has asked in vain; or it asks for one.
	 */
	:: atomic
		{
			s[me].step == CHOSEN ->
			if
			:: s[me].value BELOW s[me].reserved && AFTER_REDO(s[me].lsn) && AFTER_PAGE(s[me].lsn) ->
				s[me].logs_page = IS_FORGOTTEN || (PAGE_RECORD && page.lsn <= redo_copy);
				s[me].step = DECIDED
			:: else ->
				if
				:: true ->
					s[me].is_alone = true;
					s[me].logs_page = !(s[me].own > 0 && IN_OWN(me) &&
										OWN_AFTER_REDO(s[me].own_lsn));
					s[me].step = DECIDED
				:: true ->
					page_lock = NOBODY;
					s[me].step = MOVING
				fi
			fi;
			printf("session %d: knows of %d, record %d; redo point %d, page's record %d; covered: %d\n",
				   me, s[me].reserved, s[me].lsn, redo_copy, page.lsn,
				   s[me].step == DECIDED && !s[me].is_alone)
		}

	/*
	 * Reserve, or see that others have; then begin again.
	 */
	:: atomic
		{
			s[me].step == MOVING ->
			if
			:: IS_LIVE(reservation.state) && s[me].value BELOW reservation.reserved &&
				AFTER_REDO(reservation.lsn) && AFTER_PAGE(reservation.lsn)
			:: else ->
				/* A sequence that is far ahead may not. */
				if
#ifdef RIGHT_CLOCK
				:: s[me].value < NEXT(s[me].value) ->
					now = NEXT(s[me].value);
					reserve(now)
				/* The very next one, which the clock does not allow yet. */
				:: s[me].value == NEXT(s[me].value) && HAS_WAITED(me) ->
					now = s[me].value + 1;
					s[me].since = 0;
					reserve(now)
				:: s[me].since == 0 && s[me].value >= NEXT(s[me].value) ->
					s[me].since = time
#else
				:: true ->
					now = MAX(reservation.reserved, s[me].value + 1);
					reserve(now)
#endif
				:: true
				fi
			fi;
			remember(me);
			end_call(me)
		}

	/* Mark dirty, in core's order; log the page, or join; unlock it, issue. */
	:: atomic
		{
			s[me].step == DECIDED ->
			dirty = true;
			if
			:: s[me].is_alone && s[me].logs_page ->
				s[me].waits = s[me].waits || TAKES_XID
			:: s[me].is_alone && !s[me].logs_page && !OWN_IS_DURABLE(s[me].own_lsn) ->
				s[me].waits = true
			:: !s[me].is_alone && IS_FORGOTTEN ->
				s[me].waits = s[me].waits || TAKES_XID
			:: !s[me].is_alone && !IS_FORGOTTEN && !IS_DURABLE(s[me].lsn) ->
				s[me].waits = true
			:: else
			fi;
			page.last = s[me].value;
			if
			:: s[me].logs_page ->
				now = s[me].value;
				forget_own();
				if
				:: s[me].is_alone ->
					do
					:: now < VALUES -> now++
					:: break
					od
				:: else
				fi;
				log(OF_PAGE, now);
				page.lsn = wal_end;
				if
				:: s[me].is_alone ->
					s[me].own = now;
					s[me].own_lsn = wal_end
				:: else
				fi;
				printf("session %d: logs the page, alone: %d, up to %d\n", me, s[me].is_alone, now);
				now = 0
			:: else
			fi;
			page_lock = NOBODY;

			printf("session %d: issues %d\n", me, s[me].value);
			check_claim(me);
			watch(me);
			s[me].has_looked = false;
			s[me].above = 0;
			s[me].since = 0;
			end_call(me)
		}

	/* Commit: only WAL and a transaction id make it wait for a flush. */
#ifdef FEW
	:: atomic
		{
			s[me].step == REST && s[me].waits ->
			flush(wal_end);
			acknowledge(me)
		}
#else
	:: atomic
		{
			s[me].step == REST && s[me].waits ->
			s[me].commit_lsn = wal_end;
			s[me].step = COMMITTING;
			printf("session %d: commits, needs WAL up to %d\n", me, wal_end)
		}
	:: atomic
		{
			s[me].step == COMMITTING && RECEIVED(s[me].commit_lsn) ->
			flush(s[me].commit_lsn);
			acknowledge(me)
		}
#endif
	:: atomic
		{
			s[me].step == REST && !s[me].waits && s[me].has_watched ->
			acknowledge(me)
		}

	/* Roll back; or commit with synchronous_commit off. */
	:: atomic
		{
			s[me].step == REST && (s[me].has_watched || s[me].waits) ->
			end_transaction(me);
			printf("session %d: rolls back\n", me)
		}

	/* Disconnect, for another session to come; it's enough that one does. */
	:: atomic
		{
			me == 0 && s[me].step == REST && s[me].knows ->
			end_transaction(me);
			forget_reservation(me);
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
			checkpoint == NONE && BEFORE_CRASH ->
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
			reservation_checkpoint_needed = reservation_dirty;
			checkpoint = SCANNED;
			printf("checkpoint: page is dirty: %d\n", checkpoint_needed)
		}
	/* ... writing one does. */
	:: atomic
		{
			checkpoint == SCANNED && checkpoint_needed && CAN_LOCK ->
			write_out()
		}
	:: atomic
		{
			checkpoint == SCANNED && reservation_checkpoint_needed ->
			write_reservation_out()
		}
	/*
	 * The record is flushed, the control file names it.  A standby that is
	 * further behind is a new one, by a backup.
	 */
	:: d_step
		{
			checkpoint == SCANNED && !checkpoint_needed &&
				!reservation_checkpoint_needed && RECEIVED(redo) ->
			flush(wal_end);
			rebase();
			may_be_torn = false;
			checkpoint = NONE;
			printf("checkpoint: is complete; its redo point is now %d\n", BASE)
		}
	od
}

/* The background writer, the WAL writer, and whatever else flushes. */
proctype writers()
{
	do
#ifdef FEW
	:: atomic { wal_flushed < wal_end && BEFORE_CRASH -> wal_flushed = wal_end }
#else
	:: atomic { dirty && CAN_LOCK -> write_out() }
	:: atomic { reservation_dirty -> write_reservation_out() }
	:: atomic { wal_flushed < wal_end -> wal_flushed++ }
#endif
	od
}

/*
 * Calls for all other sequences, and whoever reserves early: they do it
 * when they like, and wait for nothing.  With FOREIGN, also setval() and ALTER
 * SEQUENCE, which log the page as it is and know nothing of the reservation.  With
 * RESTART, also that, by who waits for the transactions that have used the sequence;
 * but not of one that is alone, beyond what is reserved.
 */
#if !defined(FEW) || defined(FOREIGN) || defined(RESTART)
#define HAS_OTHERS
proctype others()
{
	byte		new;

	do
#ifndef FEW
	:: atomic
		{
#ifdef RIGHT_CLOCK
			reservation.reserved < time + AHEAD ->
			new = time + AHEAD;
#else
			reservation.reserved < VALUES + 1 ->
			new = reservation.reserved + 1;
#endif
			reserve(new)
		}
#endif
#ifdef RIGHT_CLOCK
	:: atomic { time < VALUES -> time++ }
#endif
#ifdef RESTART
	:: atomic
		{
			BEFORE_CRASH && CAN_LOCK && wal_end < BASE + RESTART &&
				page.last > 0 && page.last < reservation.reserved &&
				AT_REST(0) && AT_REST(SESSIONS - 1) ->
			is_rewritten = true;
			page.last = 0;
			dirty = true;
			log(OF_PAGE, 0);
			page.lsn = wal_end;
			flush(wal_end);
			forget_own();
			printf("page: is restarted\n")
		}
#endif
#ifdef FOREIGN
	:: atomic
		{
			BEFORE_CRASH && CAN_LOCK && wal_end < BASE + FOREIGN ->
			dirty = true;
			log(OF_PAGE, page.last);
			page.lsn = wal_end;
			forget_own();
			printf("page: %d is logged by others\n", page.last)
		}
#endif
	od
}
#endif

#ifdef STANDBY
/* What the primary has flushed it sends. */
proctype receiver()
{
	do
	:: atomic
		{
			standby.lsn < wal_flushed ->
			standby.lsn++;
			replay(standby.lsn, standby.last, standby.reserved, standby.floor, standby.state)
		}
	/* A new standby: the files as they are, and the log from the redo point. */
#ifdef BACKUPS
	:: atomic
		{
			true ->
			standby.last = disk_last;
			standby.reserved = disk_reserved;
			standby.floor = disk_floor;
			standby.state = disk_state;
			i = BASE + 1;
			do
			:: i <= wal_flushed ->
				replay(i, standby.last, standby.reserved, standby.floor, standby.state);
				i++
			:: else -> break
			od;
			i = 0;
			standby.lsn = wal_flushed;
			printf("backup: has %d, reserved %d\n", standby.last, standby.reserved)
		}
#endif
	od
}
#endif

proctype crashes()
{
	byte		survives;		/* end of the WAL that recovery finds */
	bool		has_page;		/* is a record of the page replayed? */

	do
	:: atomic
		{
			BEFORE_CRASH ->
#ifdef FEW
			crash_count++;
#endif
			if
			/* Any part of the unflushed WAL may have reached the disk ... */
			:: true ->
				select(survives : wal_flushed .. wal_end);
				page.last = disk_last;
				reservation.reserved = disk_reserved;
				reservation.floor = disk_floor;
				reservation.state = disk_state;
				printf("crash: WAL up to %d survives\n", survives)
#ifdef STANDBY
			/* ... or the standby takes over. */
			:: true ->
				survives = standby.lsn;
				page.last = standby.last;
				reservation.reserved = standby.reserved;
				reservation.floor = standby.floor;
				reservation.state = standby.state;
				may_be_torn = false;
				printf("fail-over: WAL up to %d was received\n", survives)
#endif
			fi;

			/* A commit counts, whether acknowledged or not, if it can have been. */
			i = 0;
			do
			:: i < SESSIONS ->
				watched_promised = watched_promised ||
					(s[i].has_watched && s[i].step == COMMITTING &&
					 s[i].commit_lsn <= survives && RECEIVED(s[i].commit_lsn));
				end_call(i);
				end_transaction(i);
				forget_reservation(i);
				i++
			:: else -> break
			od;
			watched_issued = false;
			watched = (watched_promised -> watched : 0);
			page_lock = NOBODY;
			checkpoint = NONE;
			checkpoint_needed = false;
			reservation_checkpoint_needed = false;
			redo = BASE;
			redo_copy = BASE;
			do
			:: wal_end > survives ->
				wal_kind[wal_end] = NOTHING;
				wal_value[wal_end] = 0;
				wal_end--
			:: else -> break
			od;
			wal_flushed = wal_end;

			/*
			 * Replay: each record makes its page anew, whatever is there.  A
			 * page that has no record may not have been torn.  The checkpoint
			 * that ends a crash recovery, but not a promotion, is the
			 * checkpointer's, when it is the next to move.
			 */
			page.lsn = 0;
			reservation.lsn = 0;
			dirty = false;
			reservation_dirty = false;
			i = BASE + 1;
			do
			:: i <= wal_end ->
				replay(i, page.last, reservation.reserved, reservation.floor, reservation.state);
				if
				:: wal_kind[i] == OF_PAGE ->
					page.lsn = i;
					has_page = true
				:: else ->
					reservation.lsn = i
				fi;
				i++
			:: else -> break
			od;
			assert(!may_be_torn || has_page);	/* a torn page */
			may_be_torn = false;
			i = 0;
			survives = 0;
			has_page = false;

			/* As if written out: to replay the same again changes nothing. */
			disk_last = page.last;
			disk_reserved = reservation.reserved;
			disk_floor = reservation.floor;
			disk_state = reservation.state;
			printf("recovery: finds %d, reserved %d\n", page.last, reservation.reserved)
		}
	od
}

init
{
	atomic
	{
		/*
		 * The database is new; or it is a copy, logged with the reservation's log_cnt
		 * that it had where it was copied from.
		 */
		if
		:: true
#ifndef FEW
		:: true ->
			log(COPY_OF_RESERVATION, VALUES);
			wal_flushed = wal_end;
			reservation.reserved = VALUES;
			reservation.state = COPIED;
			reservation.lsn = wal_end;
			reservation_dirty = true;
			printf("the reservation's page is a copy\n")
#endif
		fi;

		do
		:: i < SESSIONS -> run session(i); i++
		:: else -> break
		od;
		i = 0;
		run checkpointer();
		run writers();
#ifdef HAS_OTHERS
		run others();
#endif
#ifdef STANDBY
		run receiver();
#endif
		run crashes()
	}
}
