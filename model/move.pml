/*
 * The rules of a move, for spin: one shard, two servers, a directory, a pooler, and two
 * programs that are told any command, with either order of sides, at any time.
 *
 * The claims: never are two servers open; what a client was told stays, but for what a
 * fail-over or a restore has taken back; no command drops the only copy; and from every
 * reachable state the commands lead to an end: open on one server, no journal, the
 * directory and the pooler right.
 *
 *	model				bin/move/
 *	step of MOVE		claim_source(), claim_target(), copy_batch(), compare_tables(),
 *						try_cut_over(), open_decided(), clean_up_after()
 *	step of BACK		a move with its sides swapped
 *	step of FINISH		finish()
 *	step of ABORT		abort_move()
 *	step of AUDIT		audit --fix
 *	stream, fail_over	a standby of either server, asynchronous
 *	back_up, restore	an older state, brought up where no client is, and then by AUDIT's
 *						rule closed if the shard is open elsewhere
 *	clone				a second copy of the server that follows takes its changes
 *
 * A command is a loop: it reads both journals and what is there, and does what the
 * table says next; each option is one commit, at which the program may die instead, or lose
 * a session, and with it the lock.  So each command goes on from wherever it is.
 *
 * A row is a number: a copy has all rows up to `rows`.  A copy that differs from its source
 * in any other way is `odd`: only a comparison of all rows shows it.
 *
 * A -D flag removes a rule; the list is in ./run.
 */

#ifndef ROWS
#define ROWS		2			/* how many are written */
#endif
#ifndef FAULTS
#define FAULTS		1			/* fail-overs, restores and clones */
#endif
#ifndef PROGRAMS
#define PROGRAMS	2
#endif

#define NOBODY		2			/* no server; no program */
#ifndef OPENINGS
#define OPENINGS	3			/* how often it may move, there or back */
#endif

/* What a server has of the shard. */
#define NOTHING		0
#define CLOSED		1
#define OPEN		2

/* The journal: its role, and its step. */
#define NONE		0
#define SOURCE		1
#define TARGET		2
#define HAND		3			/* closed by hand */

#define CLAIMED		1
#define COPIED		2
#define READY		3
#define FENCED		4
#define OPENED		5
#define MOVED		6
#define ABORTED		7

/* The commands. */
#define MOVE		1
#define BACK		2
#define FINISH		3
#define ABORT		4
#define ALONE		5			/* abort, without the target */
#define AUDIT		6

typedef Server {
	byte copy;
	byte rows;
	bool odd;
	byte role;
	byte step;
	byte id;					/* which move */
	byte line;					/* its timeline */
	byte line0;					/* of both, when the copy was known to be right */
	byte line1;
	byte opening				/* which opening */
};

Server s[2];
Server standby;
Server backup;
byte standby_of = NOBODY;
byte backup_of = NOBODY;
byte follower = NOBODY;			/* of replication, from the other server */
byte lock[2] = NOBODY;			/* the programs' advisory locks */
byte txn = NOBODY;				/* which program has the source's writers wait */
byte home;						/* what the directory says */
byte pool;						/* where the pooler leads */
bool paused;
byte owed;						/* rows that clients were told of */
byte faults;
byte next_id = 1;
byte openings;
bool night;						/* the last operator is at work */

#define OTHER(x)	(1 - (x))
#define HAS(x)		(s[x].copy != NOTHING && !s[x].odd && s[x].rows >= owed)

#define HAS_DECIDED(x)	(s[x].role == SOURCE && s[x].copy == CLOSED && (s[x].step == FENCED || s[x].step == MOVED))

/* -------- the rules, each of which a flag can remove -------- */

/* The direction is in the journal: sides the wrong way round are refused. */
#define RIGHT_WAY(f, t)	((s[f].role == SOURCE || s[t].role == TARGET) && s[f].role != TARGET && s[t].role != SOURCE)
#define WRONG_WAY(f, t)	((s[f].role == TARGET || s[t].role == SOURCE) && s[f].role != SOURCE && s[t].role != TARGET)

/* finish looks whether the target has the shard. */
#ifdef NO_LOOK
#define IS_THERE(x)		true
#else
#define IS_THERE(x)		(s[x].copy == OPEN)
#endif

/* ... and goes on though the copy is gone already. */
#ifdef NO_HALF_FINISH
#define MAY_BE_HALF	false
#else
#define MAY_BE_HALF	true
#endif

/* All rows are compared if the follower may have lost some. */
#ifdef NO_COMPARE
#define IS_ODD(x)		false
#else
#define IS_ODD(x)		s[x].odd
#endif

/* A fail-over is told by the timeline. */
#ifdef NO_TIMELINE
#define FAILED_OVER(f)	false
#else
#define FAILED_OVER(f)	(s[f].line0 != s[0].line || s[f].line1 != s[1].line)
#endif

/* The directory is asked where the shard is. */
#ifdef NO_DIRECTORY
#define IS_HOME(x)		true
#else
#define IS_HOME(x)		(home == (x))
#endif

/* Standbys have the decision before the target is open, and the shard before the copy goes. */
#ifdef NO_WAIT_SOURCE
#define HAS_DECISION(f)	true
#else
#define HAS_DECISION(f)	(standby_of != (f) || (standby.role == SOURCE && standby.step == FENCED && standby.id == s[f].id))
#endif
#ifdef NO_WAIT_TARGET
#define HAS_SHARD(t)	true
#else
#define HAS_SHARD(t)	(standby_of != (t) || (standby.copy == OPEN && standby.opening == s[t].opening))
#endif


/* The decision comes before the opening. */
#ifdef NO_DECISION_FIRST
#define DECISION_FIRST	false
#else
#define DECISION_FIRST	true
#endif

/* One program is at work at a time. */
#define IS_FREE(x)		(lock[x] == NOBODY)


#define CLEAR(x)	s[x].role = NONE; s[x].step = 0; s[x].id = 0; s[x].line0 = 0; s[x].line1 = 0
#define DROP(x)		s[x].copy = NOTHING; s[x].rows = 0; s[x].odd = false; s[x].opening = 0
#define PUT(to, from) \
	to.copy = from.copy; to.rows = from.rows; to.odd = from.odd; to.role = from.role; to.step = from.step; \
	to.id = from.id; to.line0 = from.line0; to.line1 = from.line1; to.opening = from.opening

#define NOTE_LINES(f)	s[f].line0 = s[0].line; s[f].line1 = s[1].line

/* After each commit. */
inline check()
{
	printf("servers: copy %d rows %d odd %d role %d step %d id %d line %d, copy %d rows %d odd %d role %d step %d id %d line %d, follower %d home %d pool %d paused %d owed %d\n",
		   s[0].copy, s[0].rows, s[0].odd, s[0].role, s[0].step, s[0].id, s[0].line,
		   s[1].copy, s[1].rows, s[1].odd, s[1].role, s[1].step, s[1].id, s[1].line, follower, home, pool, paused, owed);
	assert(!(s[0].copy == OPEN && s[1].copy == OPEN));	/* two are open */
	assert(HAS(0) || HAS(1));							/* a row is lost */
	assert(s[0].copy != OPEN || HAS(0));
	assert(s[1].copy != OPEN || HAS(1))
}

/* Where the target is open, all else follows. */
inline open_target(z)
{
	openings++;
	s[z].copy = OPEN;
	s[z].step = OPENED;
	s[z].opening = openings
}

/*
 * One commit of a command, by what there is.  `cut` is how far this program's own cut-over
 * is: 1 paused, 2 the writers wait, 3 the target is ready.  Sets `over` if there is nothing
 * to do, or it is refused.
 */
inline step_of_move(p, mf, mt)
{
	if
	/* Nothing is under way. */
	:: s[mf].role == NONE && s[mt].role == NONE ->
		if
		:: s[mf].copy == OPEN && s[mt].copy == NOTHING && IS_HOME(mf) && openings < OPENINGS ->
			s[mf].role = SOURCE;
			s[mf].step = CLAIMED;
			s[mf].id = next_id;
			next_id = next_id % 3 + 1
		:: else -> over = true
		fi
	:: else ->
	if
	:: !RIGHT_WAY(mf, mt) || (s[mf].role == SOURCE && s[mt].role == TARGET && s[mf].id != s[mt].id) || s[mf].role != SOURCE ||
		s[mf].step == ABORTED || s[mt].step == ABORTED ->
		over = true
	:: else ->
	if
	:: s[mf].step == CLAIMED && s[mt].role == NONE ->
		if
		:: s[mt].copy == NOTHING ->
			s[mt].role = TARGET;
			s[mt].step = CLAIMED;
			s[mt].id = s[mf].id
		:: else -> over = true
		fi
	:: s[mf].step == CLAIMED && s[mt].step == CLAIMED ->
		s[mt].copy = CLOSED;
		s[mt].rows = s[mf].rows;
		s[mt].odd = false;
		s[mt].step = COPIED;
		follower = mt
	:: s[mf].step == CLAIMED && s[mt].role == TARGET && s[mt].step != CLAIMED ->
		if
		:: follower == mt && s[mt].copy == CLOSED ->
			s[mf].step = COPIED;
			NOTE_LINES(mf)
		:: else ->
			DROP(mt);
			s[mt].step = CLAIMED
		fi
	/* The copy is there.  Is it right? */
	:: s[mf].step == COPIED && (s[mt].role == NONE || s[mt].step == CLAIMED || follower != mt || IS_ODD(mt) ||
							   (FAILED_OVER(mf) && (s[mt].odd || s[mt].rows != s[mf].rows))) ->
		cut = 0;
		follower = NOBODY;
		if
		:: s[mt].role == NONE -> over = true
		:: s[mt].role == TARGET && s[mt].copy != OPEN ->
			DROP(mt);
			s[mt].step = CLAIMED;
			s[mf].step = CLAIMED
		:: else -> over = true
		fi
	:: s[mf].step == COPIED && s[mt].role == TARGET && s[mt].step != CLAIMED && follower == mt && !IS_ODD(mt) &&
		FAILED_OVER(mf) && !s[mt].odd && s[mt].rows == s[mf].rows ->
		NOTE_LINES(mf)
	/* The cut-over. */
	:: s[mf].step == COPIED && s[mt].role == TARGET && (s[mt].step == COPIED || s[mt].step == READY) && follower == mt &&
		!IS_ODD(mt) && !FAILED_OVER(mf) ->
		if
		:: cut == 0 -> paused = true; cut = 1
		:: cut == 1 && txn == NOBODY -> txn = p; cut = 2
		:: cut == 1 && txn != NOBODY -> over = true
		:: cut == 2 && s[mt].rows < s[mf].rows -> s[mt].rows = s[mf].rows
		:: cut == 2 && s[mt].rows >= s[mf].rows -> s[mt].step = READY; cut = 3
		:: cut == 3 && DECISION_FIRST ->
			s[mf].copy = CLOSED;
			s[mf].step = FENCED;
			txn = NOBODY;
			cut = 0
		:: cut == 3 && !DECISION_FIRST && s[mt].copy != OPEN -> open_target(mt)
		:: cut == 3 && !DECISION_FIRST && s[mt].copy == OPEN ->
			s[mf].copy = CLOSED;
			s[mf].step = FENCED;
			txn = NOBODY;
			cut = 0
		fi
	/* Decided. */
	:: (s[mf].step == FENCED || s[mf].step == MOVED) && s[mt].role == TARGET && s[mt].step != OPENED ->
		if
		:: s[mt].step == READY && (!FAILED_OVER(mf) || (!s[mt].odd && s[mt].rows == s[mf].rows)) ->
			if
			:: HAS_DECISION(mf) || s[mf].step == MOVED -> open_target(mt)
			:: else -> PUT(standby, s[mf])		/* wait until it has */
			fi
		:: else -> over = true					/* abort opens the source again */
		fi
	:: s[mf].step == FENCED && s[mt].role == TARGET && s[mt].step == OPENED ->
		if
		:: pool != mt -> pool = mt; paused = false
		:: pool == mt && !HAS_SHARD(mt) -> PUT(standby, s[mt])
		:: pool == mt && HAS_SHARD(mt) && home != mt -> home = mt
		:: pool == mt && home == mt && HAS_SHARD(mt) ->
			follower = mf;						/* --reverse */
			s[mf].step = MOVED
		fi
	:: else -> over = true
	fi
	fi
	fi
}

/* f and t as in the move; then it is one with its sides swapped. */
inline step_of_back(p2, bf, bt)
{
	if
#ifdef NO_DIRECTION
	/* As if the copy's server were the one that the shard has come back to. */
	:: s[bf].role == TARGET && s[bt].role == SOURCE && s[bt].copy == OPEN ->
		s[bt].copy = CLOSED;
		s[bt].step = FENCED;
		over = true
#endif
	:: s[bf].role == SOURCE && s[bf].step == MOVED && s[bt].role == TARGET && s[bt].step == OPENED && s[bf].id == s[bt].id &&
		follower == bf && !IS_ODD(bf) && !FAILED_OVER(bf) && openings < OPENINGS ->
		s[bt].role = SOURCE;
		s[bt].step = COPIED;
		NOTE_LINES(bt)
	:: s[bf].role == SOURCE && s[bf].step == MOVED && s[bt].role == SOURCE && s[bt].step == COPIED && s[bf].id == s[bt].id ->
		s[bf].role = TARGET;
		s[bf].step = COPIED
	:: s[bf].role == TARGET && s[bt].role == SOURCE && s[bt].id == s[bf].id -> step_of_move(p2, bt, bf)
	:: else -> over = true
	fi
}

inline step_of_finish(ff, ft)
{
	if
	/* A target that has forgotten it: with --cascade, by who has compared the two. */
	:: s[ff].role == SOURCE && (s[ff].step == MOVED || (s[ff].step == FENCED && s[ft].role == NONE)) && IS_THERE(ft) && (s[ft].role == NONE || (s[ft].role == TARGET && s[ft].id == s[ff].id)) ->
		if
		:: follower == ff -> follower = NOBODY
		:: else -> DROP(ff); CLEAR(ff)
		fi
	/* The other half: the copy is gone. */
	:: MAY_BE_HALF && s[ff].role == NONE && s[ff].copy == NOTHING && s[ft].role == TARGET && s[ft].step == OPENED && s[ft].copy == OPEN -> CLEAR(ft)
	:: else -> over = true
	fi
}

inline step_of_abort(af, at)
{
	if
	:: s[af].role == SOURCE && s[af].step == MOVED && s[at].role == SOURCE && s[at].step == COPIED && s[af].id == s[at].id ->
		s[at].role = TARGET;						/* a way back that is half begun */
		s[at].step = OPENED
	:: (s[af].role == SOURCE || s[af].role == NONE) && (s[at].role == TARGET || s[at].role == NONE) &&
		!(s[af].role == NONE && s[at].role == NONE) && s[at].copy != OPEN &&
		(s[af].role == NONE || s[at].role == NONE || s[af].id == s[at].id) ->
		if
		:: s[at].role == TARGET && s[at].step != ABORTED ->
			s[at].step = ABORTED
		:: (s[at].role != TARGET || s[at].step == ABORTED) &&
			s[af].role == SOURCE && (s[af].step != ABORTED || s[af].copy != OPEN) ->
			s[af].step = ABORTED;
			s[af].copy = OPEN;
			paused = false;
			pool = af;
			home = af
		:: s[at].role == TARGET && s[at].step == ABORTED && s[af].copy == OPEN && (s[af].role == NONE || s[af].step == ABORTED) ->
			follower = NOBODY;
			DROP(at);
			CLEAR(at)
		:: s[at].role == NONE && s[af].role == SOURCE && s[af].step == ABORTED && s[af].copy == OPEN ->
			follower = (follower == at -> NOBODY : follower);
			CLEAR(af)
		:: else -> over = true
		fi
	:: else -> over = true
	fi
}

/* abort, while the target cannot be reached: not after the decision. */
inline step_of_abort_alone(lf)
{
	if
	:: s[lf].role == SOURCE && s[lf].copy == OPEN && s[lf].step != MOVED ->
		paused = false;
		follower = NOBODY;
		CLEAR(lf)
	:: else -> over = true
	fi
}

/* What contradicts itself, and can be mended so that nothing is lost. */
inline step_of_audit()
{
	byte o = (s[0].copy == OPEN -> 0 : (s[1].copy == OPEN -> 1 : NOBODY));

	if
	:: o != NOBODY && (s[OTHER(o)].role == HAND || (s[OTHER(o)].role == NONE && s[OTHER(o)].copy == CLOSED)) ->
#ifdef NO_STALE
		s[OTHER(o)].copy = OPEN;				/* as a hint at unfence_shard() */
#else
		DROP(OTHER(o));
#endif
		CLEAR(OTHER(o));
		follower = NOBODY
	/* Open nowhere: what was decided counts. */
	:: o == NOBODY && HAS_DECIDED(1) && !HAS_DECIDED(0) && (s[0].role == HAND || (s[0].role != NONE && s[0].id != s[1].id)) -> DROP(0); CLEAR(0)
	:: o == NOBODY && HAS_DECIDED(0) && !HAS_DECIDED(1) && (s[1].role == HAND || (s[1].role != NONE && s[1].id != s[0].id)) -> DROP(1); CLEAR(1)
	/* ... and of two decisions that of the server that has not gone back since, as the other's journal tells. */
	:: o == NOBODY && HAS_DECIDED(0) && HAS_DECIDED(1) ->
		if
		:: s[1].line0 != s[0].line -> DROP(0); CLEAR(0)
		:: else -> DROP(1); CLEAR(1)
		fi;
		follower = NOBODY
	/* Two moves, of which one was taken back by a restore; or the source of this copy is no more. */
	:: o != NOBODY && s[OTHER(o)].role != HAND && s[OTHER(o)].copy != OPEN && s[OTHER(o)].role != NONE &&
		((s[o].role != NONE && s[o].id != s[OTHER(o)].id) || (s[o].role == NONE && s[OTHER(o)].role == TARGET) ||
		 (s[o].role == s[OTHER(o)].role && !(s[o].role == SOURCE && s[o].step == COPIED && s[OTHER(o)].step == MOVED)) ||
		 (s[o].role == SOURCE && s[OTHER(o)].role == TARGET && s[o].step > READY)) ->
		DROP(OTHER(o));
		CLEAR(OTHER(o));
		follower = NOBODY
	:: o != NOBODY && (MAY_BE_HALF || s[o].role != TARGET) && s[OTHER(o)].role == NONE && s[OTHER(o)].copy == NOTHING && s[o].role != NONE -> CLEAR(o)
	:: o != NOBODY && home != o && s[0].role == NONE && s[1].role == NONE -> home = o
	:: o != NOBODY && (pool != o || paused) && s[0].role == NONE && s[1].role == NONE -> pool = o; paused = false
	:: else -> over = true
	fi;
	o = 0
}

#define HAS_LOCKS(me)	(lock[f] == (me) && (cmd == ALONE || lock[t] == (me)))

inline leave(l)
{
	if :: txn == l -> txn = NOBODY :: else fi;
	if :: lock[0] == l -> lock[0] = NOBODY :: else fi;
	if :: lock[1] == l -> lock[1] = NOBODY :: else fi;
	cmd = 0;
	cut = 0;
	f = 0;
	t = 0;
	over = false
}

proctype program(byte me)
{
	byte cmd, f, t, cut;
	bool over;

	do
	/* A command is typed, with sides. */
	:: atomic { cmd == 0 && !night ->
		if :: f = 0 :: f = 1 fi;
		t = OTHER(f);
		if :: cmd = MOVE :: cmd = BACK :: cmd = FINISH :: cmd = ABORT :: cmd = ALONE :: cmd = AUDIT fi;
		if
		:: IS_FREE(f) && (cmd == ALONE || IS_FREE(t)) ->
			lock[f] = me;
			if :: cmd != ALONE -> lock[t] = me :: else fi
		:: else -> leave(me)
		fi }
	/* It does what comes next. */
	:: atomic { cmd != 0 && HAS_LOCKS(me) ->
		if
		:: cmd == MOVE -> printf("command %d from %d\n", cmd, f); step_of_move(me, f, t)
		:: cmd == BACK -> printf("command %d from %d\n", cmd, f); step_of_back(me, f, t)
		:: cmd == FINISH -> printf("command %d from %d\n", cmd, f); step_of_finish(f, t)
		:: cmd == ABORT -> printf("command %d from %d\n", cmd, f); step_of_abort(f, t)
		:: cmd == ALONE -> printf("command %d from %d\n", cmd, f); step_of_abort_alone(f)
		:: cmd == AUDIT -> printf("command %d from %d\n", cmd, f); step_of_audit()
		fi;
		check();
		if :: over -> leave(me) :: else fi }
	/* It dies, or has lost a session, with its lock. */
	:: atomic { cmd != 0 -> leave(me) }
	:: night -> break
	od
}

/* Of two closed copies that are both targets only a person can say which is the one. */
#define IS_SOMEWHERE(state, other)	(s[other].copy == OPEN || HAS_DECIDED(other) || state.copy == OPEN || \
	(state.copy == CLOSED && state.role == SOURCE))

/* What clients were told of last may be honestly lost: what of it is in neither place. */
#define TAKE_BACK(x, state) \
	if \
	:: s[OTHER(x)].copy == OPEN || (s[x].copy != OPEN && HAS_DECIDED(OTHER(x))) -> skip \
	:: s[x].copy == OPEN && state.copy != OPEN && HAS_DECIDED(OTHER(x)) -> owed = (s[OTHER(x)].rows < owed -> s[OTHER(x)].rows : owed) \
	:: else -> owed = (state.rows < owed && (state.copy == OPEN || state.role == SOURCE) -> state.rows : owed) \
	fi

/* Another state of a server takes its place; its sessions end. */
#define TAKE_PLACE(x, state) \
	if :: s[OTHER(x)].copy == CLOSED && !HAS_DECIDED(OTHER(x)) && state.copy == OPEN && s[OTHER(x)].rows > state.rows -> s[OTHER(x)].odd = true :: else fi; \
	gone = (follower == x && state.copy == CLOSED && state.role == TARGET && state.rows < s[x].rows); \
	was = s[x].rows; \
	PUT(s[x], state); \
	if :: gone -> s[x].odd = true; s[x].rows = was :: else fi; \
	s[x].line++; \
	/* Neither a standby nor a backup has the slots. */ \
	if :: follower == OTHER(x) -> follower = NOBODY :: follower == x && state.copy != CLOSED -> follower = NOBODY :: else fi; \
	if :: txn != NOBODY && lock[x] == txn -> txn = NOBODY :: else fi; \
	lock[x] = NOBODY; \
	gone = false; was = 0

proctype world()
{
	byte x, was;
	bool gone;

	do
	/* Clients write, and replication follows. */
	:: atomic { txn == NOBODY && s[0].copy == OPEN && s[0].rows < ROWS -> s[0].rows++; owed = s[0].rows }
	:: atomic { txn == NOBODY && s[1].copy == OPEN && s[1].rows < ROWS -> s[1].rows++; owed = s[1].rows }
	:: atomic { follower != NOBODY && s[follower].copy == CLOSED && s[follower].rows < s[OTHER(follower)].rows -> s[follower].rows++ }
	/* A session ends, with its lock: a server is started anew. */
	:: atomic { lock[0] != NOBODY -> if :: txn == lock[0] -> txn = NOBODY :: else fi; lock[0] = NOBODY }
	:: atomic { lock[1] != NOBODY -> if :: txn == lock[1] -> txn = NOBODY :: else fi; lock[1] = NOBODY }
#ifdef STANDBY
	:: atomic { standby_of != NOBODY -> PUT(standby, s[standby_of]) }
	:: atomic { standby_of != NOBODY && faults < FAULTS && IS_SOMEWHERE(standby, OTHER(standby_of)) &&
		/* Honestly lost is what was written last; not a shard that was finished. */
		(s[standby_of].copy != OPEN || (standby.copy == OPEN && standby.opening == s[standby_of].opening) ||
		 (s[OTHER(standby_of)].copy == CLOSED && !s[OTHER(standby_of)].odd)) ->
		faults++;
		printf("fail-over of %d\n", standby_of);
		x = standby_of;
		TAKE_BACK(x, standby);
		TAKE_PLACE(x, standby);
		x = 0;
		check() }
#endif
#ifdef RESTORE
	:: atomic { backup_of == NOBODY -> if :: x = 0 :: x = 1 fi; backup_of = x; PUT(backup, s[x]); x = 0 }
	:: atomic { backup_of != NOBODY && faults < FAULTS &&
		IS_SOMEWHERE(backup, OTHER(backup_of)) &&
		(s[backup_of].copy != OPEN || (backup.copy == OPEN && backup.opening == s[backup_of].opening) ||
		 (backup.copy != OPEN && s[OTHER(backup_of)].copy == CLOSED && s[OTHER(backup_of)].role == SOURCE && !s[OTHER(backup_of)].odd)) ->
		faults++;
		printf("restore of %d\n", backup_of);
		x = backup_of;
		TAKE_BACK(x, backup);
		TAKE_PLACE(x, backup);
		/* Before any client may come. */
		if
		:: s[x].copy == OPEN && (s[OTHER(x)].copy == OPEN || (HAS_DECIDED(OTHER(x)) &&
			(s[OTHER(x)].step == MOVED -> home != x : !(s[x].role == TARGET && s[x].step == OPENED && s[x].id == s[OTHER(x)].id)))) ->
			s[x].copy = CLOSED; CLEAR(x); s[x].role = HAND
		:: else
		fi;
		x = 0;
		check() }
#endif
#ifdef CLONE
	/* The server that follows is down, and a copy of it takes what comes. */
	:: atomic { follower != NOBODY && faults < FAULTS && s[follower].copy == CLOSED && s[follower].rows < s[OTHER(follower)].rows ->
		faults++;
		s[follower].odd = true;
		s[follower].rows = s[OTHER(follower)].rows;
		if :: txn != NOBODY && lock[follower] == txn -> txn = NOBODY :: else fi;
		lock[follower] = NOBODY }
	/* A copy of a server that was the source is taken for it. */
	:: atomic { s[home].copy == OPEN && faults < FAULTS && s[OTHER(home)].copy == NOTHING && s[OTHER(home)].role == NONE && s[home].role == NONE ->
		faults++;
#ifdef NO_DIRECTORY
		s[OTHER(home)].copy = OPEN;
		s[OTHER(home)].rows = s[home].rows;
		check()
#endif
		}
#endif
	:: night -> break
	od
}

/* Does it come to its end?  Whoever is there looks, and types what leads on. */
proctype operator()
{
	byte cmd, f, t, cut, n;
	bool over;

	atomic {
		lock[0] == NOBODY && lock[1] == NOBODY -> night = true;
		printf("the end\n");
		do
		:: n < 40 ->
			n++;
			over = false;
			f = ((s[0].role == SOURCE && !(s[1].role == SOURCE && s[1].step == MOVED)) || s[1].role == TARGET -> 0 : 1);
			t = OTHER(f);
			if
			:: s[0].role == NONE && s[1].role == NONE -> over = true
			:: HAS_DECIDED(0) && HAS_DECIDED(1) -> step_of_audit()
			:: else ->
			if
			:: s[0].role == SOURCE && s[1].role == SOURCE && s[0].step == MOVED -> f = 0; t = 1; step_of_abort(f, t)
			:: s[0].role == SOURCE && s[1].role == SOURCE && s[1].step == MOVED -> f = 1; t = 0; step_of_abort(f, t)
			:: else ->
				step_of_finish(f, t);
				if
				:: over -> over = false; step_of_abort(f, t)
				:: else
				fi;
				if
				:: over -> over = false; step_of_move(NOBODY, f, t)
				:: else
				fi
			fi
			fi;
			if
			:: over -> over = false; step_of_audit()
			:: else
			fi;
			if :: over -> break :: else fi;
			check()
		:: else -> break
		od;
		assert(s[0].role == NONE && s[1].role == NONE);						/* it is stuck */
		assert((s[0].copy == OPEN) != (s[1].copy == OPEN));					/* it is stuck: open nowhere */
		assert(s[home].copy == OPEN && s[pool].copy == OPEN && !paused)		/* it is stuck: elsewhere */
	}
}

init
{
	atomic {
		s[0].copy = OPEN;
#ifdef STANDBY
		if :: standby_of = 0 :: standby_of = 1 fi;
		PUT(standby, s[standby_of]);
#endif
		run program(0);
#if PROGRAMS > 1
		run program(1);
#endif
		run world();
		run operator()
	}
}
