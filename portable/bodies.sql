/*
 * The bodies of what is C in the extension, in SQL and PL/pgSQL.
 *
 * portable/build puts them in the place of "LANGUAGE c" in snowid--1.0.sql, from
 * which it takes all the rest: names, arguments, results, markings, comments and
 * rights.  A block begins with "-- body of" and the function's head; "-- helpers"
 * begins what only this edition has, for which those of shards follow the registry, and
 * "-- rights" the end of the script.
 *
 * What is called for each id or row is a parsed SQL expression, or qualifies
 * each name and operator: a SET clause would cost more than the rest.  Errors
 * are raised elsewhere, with a fixed search path.
 */

-- helpers

-- A node of Citus would make ids that another node makes, too.
DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'citus') THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = 'the portable edition does not work in a database of Citus';
	END IF;
END
$$;

-- What a transaction sets to have its commit flush the log.
CREATE SEQUENCE snowid_internal.flushed;

COMMENT ON SEQUENCE snowid_internal.flushed IS
'its value means nothing: next_id() sets it, so that the commit waits for the log';

CREATE FUNCTION snowid_internal.iso(at timestamptz)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
BEGIN
	RETURN at;
END
$$;

COMMENT ON FUNCTION snowid_internal.iso(timestamptz) IS
'a time as it stands in messages';

-- Exact, also for what is no time.
CREATE FUNCTION snowid_internal.slot_at(slot bigint, epoch timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN timezone('UTC', timezone('UTC', $2) + make_interval(days => (($1 >> 10) / 86400000)::int)
					   + (($1 >> 10) % 86400000) * interval '1 millisecond');

COMMENT ON FUNCTION snowid_internal.slot_at(bigint, timestamptz) IS
'time of a slot';

/*
 * check_shard, check_epoch: the guards of arguments.
 *
 * Errors: 22003 no shard number, 22008 not finite.
 */
CREATE FUNCTION snowid_internal.check_shard(shard int)
RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF shard NOT BETWEEN 0 AND 8191 THEN
		RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
			MESSAGE = format('shard number %s is out of range', shard),
			DETAIL = 'Shard numbers are between 0 and 8191.';
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_shard(int) IS
'refuses what is no shard number';

CREATE FUNCTION snowid_internal.check_epoch(epoch timestamptz)
RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT isfinite(epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = 'epoch must be finite';
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_epoch(timestamptz) IS
'refuses an epoch that is not finite';

-- Microseconds since the epoch, exactly, whatever the times.
CREATE FUNCTION snowid_internal.us_since(at timestamptz, epoch timestamptz)
RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (extract(epoch FROM $1) - extract(epoch FROM $2)) * 1000000;

COMMENT ON FUNCTION snowid_internal.us_since(timestamptz, timestamptz) IS
'microseconds from an epoch to a time';

-- Clamped to what is generated, so that bounds compare as bigint does.
CREATE FUNCTION snowid_internal.clamped_ms(at timestamptz, epoch timestamptz,
	round_up boolean)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ms_last CONSTANT bigint := 1099511627775;
	ms numeric;
BEGIN
	PERFORM snowid_internal.check_epoch(epoch);
	IF NOT isfinite(at) THEN
		RETURN CASE WHEN at < epoch THEN 0 ELSE ms_last END;
	END IF;
	ms := snowid_internal.us_since(at, epoch) / 1000;
	RETURN least(greatest(CASE WHEN round_up THEN ceil(ms) ELSE floor(ms) END, 0), ms_last);
END
$$;

COMMENT ON FUNCTION snowid_internal.clamped_ms(timestamptz, timestamptz, boolean) IS
'milliseconds from an epoch to a time, within what ids can have';

-- Errors: 22008 not finite, or the sum is more than a timestamp can hold.
CREATE FUNCTION snowid_internal.far_timestamp(id bigint, epoch timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ms CONSTANT bigint := (id >> 23) & 2199023255551;
BEGIN
	PERFORM snowid_internal.check_epoch(epoch);
	IF epoch > '294276-12-31 23:59:59.999999+00'::timestamptz - ms * interval '1 millisecond' THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = 'timestamp out of range',
			DETAIL = format('The epoch %s and %s milliseconds are more than a timestamp can hold.', snowid_internal.iso(epoch), ms);
	END IF;
	RETURN epoch + ms * interval '1 millisecond';
END
$$;

COMMENT ON FUNCTION snowid_internal.far_timestamp(bigint, timestamptz) IS
'id_timestamp() with an epoch that may be too late, or not finite';

-- Errors: 42P01 no such sequence, 42809 not a sequence, or the reservation.
CREATE FUNCTION snowid_internal.sequence_name(seq regclass)
RETURNS name
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	c record;
BEGIN
	SELECT r.relname, r.relkind INTO c FROM pg_class r WHERE r.oid = seq;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table',
			MESSAGE = format('sequence with OID %s does not exist', seq::oid);
	END IF;
	IF c.relkind <> 'S' THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a sequence', c.relname);
	END IF;
	-- A slot is no time for the clock, and all sequences would follow.
	IF c.relname = 'reservation' AND seq = to_regclass('snowid_internal.reservation') THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = 'sequence "snowid_internal.reservation" makes no ids',
			DETAIL = 'It holds what is reserved for all other sequences.',
			HINT = 'Name a sequence of your own, such as insta5.id_seq.';
	END IF;
	RETURN c.relname;
END
$$;

COMMENT ON FUNCTION snowid_internal.sequence_name(regclass) IS
'name of a sequence of ids, and refuses what is none';

/*
 * known_epoch: the epoch of a sequence's ids, by its shard or by the DEFAULT of
 * the column that owns it; NULL if neither says.
 */
CREATE FUNCTION snowid_internal.known_epoch(seq regclass)
RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	its_schema CONSTANT name := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = seq);
	epoch timestamptz;
BEGIN
	SELECT r.epoch INTO epoch FROM snowid.shard_registry r WHERE r.schema = its_schema;
	IF FOUND OR its_schema = 'snowid' THEN
		RETURN coalesce(epoch, snowid.id_timestamp(0::bigint));
	END IF;
	RETURN (
		SELECT nullif(c.epoch, '-infinity')
		FROM pg_depend d JOIN pg_attrdef e ON e.adrelid = d.refobjid AND e.adnum = d.refobjsubid, snowid_internal.id_call(e.oid) c
		WHERE d.classid = 'pg_class'::regclass AND d.objid = known_epoch.seq AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'a'
		  AND c.seq = known_epoch.seq);
END
$$;

COMMENT ON FUNCTION snowid_internal.known_epoch(regclass) IS
'epoch of a sequence''s ids, if it is known';

/*
 * sequence_epoch: the epoch of a sequence's ids, given or -infinity for its own.
 *
 * Errors: 22023 not the known one, 22008 not finite.
 */
CREATE FUNCTION snowid_internal.sequence_epoch(seq regclass, epoch timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	known CONSTANT timestamptz := snowid_internal.known_epoch(seq);
BEGIN
	IF epoch = '-infinity' THEN
		RETURN coalesce(known, snowid.id_timestamp(0::bigint));
	END IF;
	PERFORM snowid_internal.check_epoch(epoch);
	IF epoch <> known THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('epoch %s is not that of sequence "%s"', snowid_internal.iso(epoch),
							 (SELECT relname FROM pg_class WHERE oid = seq)),
			DETAIL = format('The shard of %s, or the DEFAULT of its column, has another one.', snowid_internal.qualified_name(seq)),
			HINT = format('Type as the last argument: %L', snowid_internal.iso(known));
	END IF;
	RETURN epoch;
END
$$;

COMMENT ON FUNCTION snowid_internal.sequence_epoch(regclass, timestamptz) IS
'refuses an epoch that the ids of a sequence have not';

/*
 * open_sequence: locks a sequence to the end of the transaction, and checks
 * that the caller may use it so.
 *
 * The lock that pg_sequence_last_value() takes is that of nextval().  Taken
 * before the generator's own lock, it keeps ALTER SEQUENCE, which waits for it,
 * out of the way of those who hold that.
 *
 * Errors: 42P01 no such sequence, 42809 not a sequence, or the clock, 42501 no
 * privilege.
 */
CREATE FUNCTION snowid_internal.open_sequence(seq regclass, needed text[])
RETURNS pg_catalog.pg_sequence
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name name;
	privilege text;
	rules pg_catalog.pg_sequence;
BEGIN
	name := snowid_internal.sequence_name(seq);
	FOREACH privilege IN ARRAY needed LOOP
		IF has_sequence_privilege(seq, privilege) IS NOT TRUE THEN
			RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
				MESSAGE = format('permission denied for sequence %s', name),
				HINT = format('In the portable edition, the sequence''s owner types: GRANT USAGE, UPDATE ON SEQUENCE %s TO %I;',
							  seq, current_user);
		END IF;
	END LOOP;
	PERFORM pg_sequence_last_value(seq);
	-- Now that it can't be altered any more.
	SELECT * INTO rules FROM pg_sequence s WHERE s.seqrelid = seq;
	IF rules.seqincrement NOT BETWEEN 1 AND 1024 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('increment %s of sequence "%s" is out of range', rules.seqincrement, name),
			DETAIL = 'The increment is the number of ids that a call reserves in one millisecond, between 1 and 1024.',
			HINT = format('Type: ALTER SEQUENCE %s INCREMENT BY 1;', snowid_internal.qualified_name(seq));
	END IF;
	IF rules.seqstart = rules.seqmin AND rules.seqmin > 1
	   AND rules.seqmin & ((1::bigint << 48) - 1) = 1 THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('sequence "%s" is a copy that makes no ids on this node', name),
			DETAIL = format('It has the range that Citus gives worker group %s.', rules.seqmin >> 48),
			HINT = 'Connect to the coordinator.';
	END IF;
	RETURN rules;
END
$$;

COMMENT ON FUNCTION snowid_internal.open_sequence(regclass, text[]) IS
'locks a sequence, checks what the caller may do, and reads its definition';

CREATE FUNCTION snowid_internal.qualified_name(seq regclass)
RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN (SELECT format('%I.%I', n.nspname, c.relname)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1);

COMMENT ON FUNCTION snowid_internal.qualified_name(regclass) IS
'a sequence''s name as one would type it';

/*
 * refuse_slot: says why a sequence gives no slot, and what to do about it.
 *
 * Errors: 22008 the clock is before the epoch, 2200H the layout's time is used
 * up or MAXVALUE is reached, 22023 a CACHE too large to begin with, 55000 over a
 * day ahead of the clock; SN001 and SN002 a closed shard.
 */
CREATE FUNCTION snowid_internal.refuse_slot(reason text, seq regclass, last bigint,
	at timestamptz, epoch timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name CONSTANT name := (SELECT relname FROM pg_class WHERE oid = seq);
	qualified CONSTANT text := snowid_internal.qualified_name(seq);
	clock CONSTANT text := snowid_internal.iso(at);
	argument CONSTANT text := CASE WHEN epoch <> snowid.id_timestamp(0::bigint) THEN format(', %L', snowid_internal.iso(epoch)) END;
	advance_call CONSTANT text := format('SELECT snowid.advance(%L, snowid.min_id(now()%s)%s);', qualified, argument, argument);
	s pg_catalog.pg_sequence;
BEGIN
	SELECT * INTO s FROM pg_sequence q WHERE q.seqrelid = seq;
	CASE reason
	WHEN 'before epoch' THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = 'the clock is before the epoch',
			DETAIL = format('The clock shows %s, the epoch is %s.', clock, snowid_internal.iso(epoch)),
			HINT = 'Set the server''s clock right, or pass an epoch that has begun.';
	WHEN 'exhausted' THEN
		RAISE EXCEPTION USING ERRCODE = 'sequence_generator_limit_exceeded',
			MESSAGE = format('sequence "%s" has used up the time of the id layout', name),
			DETAIL = format('With this epoch, the last id is of %s; the clock shows %s.',
							snowid_internal.iso(epoch + 1099511627775 * interval '1 millisecond'), clock),
			HINT = 'For new tables, pass a later epoch as the third argument of snowid.next_id().';
	WHEN 'too far ahead' THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('sequence "%s" is more than one day ahead of the clock', name),
			DETAIL = format('Its last id is of %s; the clock shows %s.',
							snowid_internal.iso(snowid_internal.slot_at(last, epoch)), clock),
			HINT = 'If the clock is wrong, set it right. If the sequence is called with different epochs, use one. '
				|| format('If something else set the sequence, and it has issued no id later than the clock, type: ALTER SEQUENCE %s RESTART;', qualified);
	WHEN 'set too far' THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('sequence "%s" was set to what is none of its ids', name),
			DETAIL = format('Read as an id, its value is of %s; the clock shows %s. Tools set a table''s sequence to the largest id there.',
							snowid_internal.iso(snowid.id_timestamp(last, epoch)), clock),
			HINT = 'Correct the rows with such ids, and type: ' || advance_call;
	WHEN 'other epoch' THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('the ids of sequence "%s" have a later epoch than %s', name, snowid_internal.iso(epoch)),
			DETAIL = format('With the default epoch, the next one would be of %s; the clock shows %s.',
							snowid_internal.iso(at + (snowid.id_timestamp(0::bigint) - epoch)), clock),
			HINT = 'Pass the epoch that its ids have. If it is this one, the owner can type: ' || advance_call;
	WHEN 'advance' THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('cannot advance sequence "%s" to more than one day ahead of the clock', name),
			DETAIL = format('The id is of %s; the clock shows %s.',
							snowid_internal.iso(snowid_internal.slot_at(last, epoch)), clock),
			HINT = 'If the id has another epoch than the default, pass that as the third argument.';
	WHEN 'large CACHE' THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('CACHE %s of sequence "%s" is too large', s.seqcache, name),
			DETAIL = 'In the portable edition, the first call of a sequence needs a CACHE of 1024 at most.',
			HINT = format('Type: ALTER SEQUENCE %s CACHE 1;', qualified);
	WHEN 'under MINVALUE' THEN
		RAISE EXCEPTION USING ERRCODE = 'sequence_generator_limit_exceeded',
			MESSAGE = format('minimum value of sequence "%s" (%s) is later than now', name, s.seqmin),
			DETAIL = 'A dump of a state below it could not be restored.',
			HINT = format('Type: ALTER SEQUENCE %s MINVALUE 1 START 1;', qualified);
	ELSE
		PERFORM snowid_internal.refuse_relation(seq);
		RAISE EXCEPTION USING ERRCODE = 'sequence_generator_limit_exceeded',
			MESSAGE = format('reached maximum value of sequence "%s" (%s)', name, s.seqmax),
			DETAIL = 'The sequence keeps the time of its last id in last_value, which needs a bigint.',
			HINT = format('Type: ALTER SEQUENCE %s%s NO MAXVALUE;', qualified,
						  CASE WHEN s.seqmax <= 2147483647 THEN ' AS bigint' ELSE '' END);
	END CASE;
END
$$;

COMMENT ON FUNCTION snowid_internal.refuse_slot(text, regclass, bigint, timestamptz, timestamptz) IS
'says why a sequence gives no slot';

/*
 * slot_clock: the clock that slots follow, in microseconds since the epoch.
 *
 * Not before the start of the transaction, also if the clock has been set back
 * meanwhile: safe_upper_id() rests on that.
 *
 * Errors: 55000 set back by more than a day.
 */
CREATE FUNCTION snowid_internal.slot_clock(epoch timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	at CONSTANT timestamptz := clock_timestamp();
BEGIN
	IF transaction_timestamp() > at + interval '1 day' THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = 'the clock was set back by more than one day since this transaction began',
			DETAIL = format('It began at %s; the clock shows %s.',
							snowid_internal.iso(transaction_timestamp()), snowid_internal.iso(at)),
			HINT = 'Roll back, and begin a new transaction.';
	END IF;
	RETURN snowid_internal.us_since(greatest(at, transaction_timestamp()), epoch);
END
$$;

COMMENT ON FUNCTION snowid_internal.slot_clock(timestamptz) IS
'the clock, in microseconds since the epoch, and not before the transaction';

/*
 * wait: a short wait, in microseconds, for the clock to move on.
 *
 * Ends when the clock is set back, or if it stands still.  pg_sleep() would go on
 * until the clock is where it was, be that in an hour.
 */
CREATE FUNCTION snowid_internal.wait(us bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	began CONSTANT timestamptz := clock_timestamp();
	until CONSTANT timestamptz := began + us * interval '1 microsecond';
BEGIN
	FOR i IN 1 .. us * 100 LOOP
		EXIT WHEN clock_timestamp() NOT BETWEEN began AND until;
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid_internal.wait(bigint) IS
'waits some microseconds for the clock';

/*
 * slot_floor: the first slot that a dump of the C edition leaves, which carries
 * its reservation; NULL without one.  Each sequence of this edition logs for
 * itself, so nothing is reserved here.
 */
CREATE FUNCTION snowid_internal.slot_floor(epoch timestamptz)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	floor_us CONSTANT bigint := snowid_internal.us_since(
		to_timestamp(pg_sequence_last_value('snowid_internal.reservation'::regclass) / 1000.0), epoch);
BEGIN
	RETURN CASE WHEN floor_us > 0 THEN ceil(floor_us / 1000.0)::bigint << 10 END;
END
$$;

COMMENT ON FUNCTION snowid_internal.slot_floor(timestamptz) IS
'the first slot that may be issued after a restore';

/*
 * take_slots: takes the next slots of a sequence, as many times its INCREMENT as
 * wanted, or as are left in one millisecond, and returns the first and the last.
 *
 * All rules of the generator; next_id() itself only does the usual case.
 *
 * The lock on the sequence is an advisory one.  A subtransaction that is always
 * rolled back gives it up, however the call ends: setval() is not undone by
 * that, and a lock is.  Any session of the database could take that lock, and
 * so stop the sequence; the class 0x736e6f77 is there to not do so by accident.
 *
 * Errors: those of open_sequence, slot_clock and refuse_slot, 25006 read-only.
 */
CREATE FUNCTION snowid_internal.take_slots(seq regclass, epoch timestamptz, wanted int,
	OUT first bigint, OUT final bigint)
RETURNS record
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ms_last CONSTANT bigint := 1099511627775;	-- the last before the sign bit
	ahead_free CONSTANT bigint := 9;			-- opened without waiting
	ahead_sane CONSTANT bigint := 86400000;		-- more is refused
	rules pg_catalog.pg_sequence;
	now_us bigint;
	now_ms bigint;
	early_ms bigint;			-- the epoch is before the default, and not known
	last bigint;				-- NULL: never called
	set_to bigint;				-- an id, by setval(); no slot is so large
	named bigint;				-- by setval(seq, slot, false)
	floor_slot bigint;			-- of a restored dump
	may_open boolean := false;	-- have we waited to open a millisecond?
	may_start boolean := false;	-- have we let forgotten ids pass?
	reason text;
BEGIN
	rules := snowid_internal.open_sequence(seq, '{UPDATE,"SELECT, USAGE"}');
	epoch := snowid_internal.sequence_epoch(seq, epoch);
	early_ms := CASE WHEN snowid_internal.known_epoch(seq) IS NULL
					 THEN trunc(snowid_internal.us_since(snowid.id_timestamp(0::bigint), epoch) / 1000) END;
	floor_slot := snowid_internal.slot_floor(epoch);
	BEGIN
		PERFORM pg_advisory_xact_lock(1936617335, seq::oid::int);
		LOOP
			-- The clock is read under the lock, and again after each wait.
			now_us := snowid_internal.slot_clock(epoch);
			now_ms := floor(now_us / 1000.0);
			last := pg_sequence_last_value(seq);
			set_to := CASE WHEN last >> 50 > 0 AND named IS NULL THEN last END;
			IF set_to IS NOT NULL THEN
				last := (set_to >> 23 << 10) | 1023;
			END IF;
			IF now_us < 0 OR now_ms > ms_last OR named IS NULL AND last >> 10 > now_ms + ahead_sane THEN
				reason := CASE WHEN now_us < 0 THEN 'before epoch'
							   WHEN now_ms > ms_last THEN 'exhausted'
							   WHEN set_to IS NOT NULL THEN 'set too far'
							   ELSE 'too far ahead' END;
				last := coalesce(set_to, last);
				EXIT;
			END IF;
			IF early_ms > ahead_sane AND named IS NULL AND last >= 1::bigint << 40
			   AND last >> 10 <= now_ms - early_ms + ahead_sane THEN
				reason := 'other epoch';
				EXIT;
			END IF;

			-- A sequence that was restarted looks like a new one or a plain
			-- counter.  What it issued before is at most 10 ms ahead, as of one
			-- that was set to an id.
			IF NOT may_start AND (set_to IS NOT NULL OR (last < (now_ms << 10) / 2) IS NOT FALSE
								  AND pg_relation_filenode(seq) <> seq::oid) THEN
				PERFORM snowid_internal.wait(11000);
				may_start := true;
				CONTINUE;
			END IF;

			-- The value of a sequence that was never called: setval(seq, slot,
			-- false) names the next slot; a START is no time.
			IF last IS NULL AND named IS NULL AND now_ms << 10 BETWEEN rules.seqmin AND rules.seqmax THEN
				-- It makes the values of CACHE one by one, and no cancel ends that.
				IF rules.seqcache > 1024 THEN
					reason := 'large CACHE';
					EXIT;
				END IF;
				named := nextval(seq);
				IF named >> 50 > 0 AND named <> rules.seqstart THEN
					named := NULL;
				END IF;
				CONTINUE;
			END IF;
			IF named IS NOT NULL THEN
				first := CASE WHEN named <> rules.seqstart AND named >> 10 <= now_ms + ahead_sane
							  THEN greatest(named, now_ms << 10)
							  ELSE now_ms << 10 END;
				-- Another session's nextval() has come since.
				IF last > named THEN
					first := greatest(first, last + 1);
				END IF;
			ELSE
				first := greatest(last + 1, now_ms << 10);
			END IF;
			IF floor_slot >> 10 > now_ms + ahead_sane THEN
				last := floor_slot;
				reason := 'too far ahead';
				EXIT;
			END IF;
			first := greatest(first, floor_slot, 1);

			-- A block never crosses a millisecond.
			IF (first & 1023) + rules.seqincrement > 1024 THEN
				first := ((first >> 10) + 1) << 10;
			END IF;
			IF first >> 10 > ms_last THEN
				reason := 'exhausted';
				EXIT;
			ELSIF first + rules.seqincrement - 1 > rules.seqmax THEN
				reason := 'over MAXVALUE';
				EXIT;
			ELSIF first + rules.seqincrement - 1 < rules.seqmin THEN
				reason := 'under MINVALUE';
				EXIT;
			END IF;

			-- Pacing: the lock is held while a millisecond is waited for, so
			-- sessions open one at a time.
			IF NOT may_open AND first >> 10 > now_ms + ahead_free
			   AND (first >> 10 = last >> 10) IS NOT TRUE THEN
				PERFORM snowid_internal.wait(least(((first >> 10) - ahead_free) * 1000 - now_us, 1000));
				may_open := true;
				CONTINUE;
			END IF;
			final := first - 1 + rules.seqincrement * least(
				wanted, (1024 - (first & 1023)) / rules.seqincrement, (rules.seqmax - first + 1) / rules.seqincrement);
			PERFORM setval(seq, final);
			EXIT;
		END LOOP;
		RAISE SQLSTATE 'SN000';
	EXCEPTION
		WHEN SQLSTATE 'SN000' THEN
			NULL;
		WHEN read_only_sql_transaction THEN
			RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
				MESSAGE = 'cannot execute next_id() in a read-only transaction';
		WHEN invalid_transaction_state THEN
			RAISE EXCEPTION USING ERRCODE = 'invalid_transaction_state',
				MESSAGE = 'cannot execute next_id() during a parallel operation';
	END;
	IF reason IS NOT NULL THEN
		PERFORM snowid_internal.refuse_slot(reason, seq, last, clock_timestamp(), epoch);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.take_slots(regclass, timestamptz, int) IS
'takes the next slots of a sequence, by all rules';

/*
 * holders: the transactions that hold the lock of next_id() on a sequence, but
 * the caller's own: pid, virtual transaction and start.  Of a prepared one,
 * nobody knows the start.
 */
CREATE FUNCTION snowid_internal.holders(seq regclass)
RETURNS TABLE (pid int, transaction text)
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
SELECT l.pid, l.virtualtransaction FROM pg_locks l
WHERE l.locktype = 'relation' AND l.relation = $1::oid AND l.mode = 'RowExclusiveLock' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.virtualtransaction NOT LIKE '%/0';
END;

COMMENT ON FUNCTION snowid_internal.holders(regclass) IS
'other transactions that may have taken ids of a sequence';

-- helpers of shards

/*
 * missing_grants: what to type for those who use a shard's sequences now, as the
 * extension and the snippet let them, and could not here.
 *
 * Of one schema, or of all shards.  sequence: also before it is a shard's.
 */
CREATE FUNCTION snowid_internal.missing_grants(schema name DEFAULT NULL,
	sequence regclass DEFAULT NULL)
RETURNS SETOF text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
SELECT format('GRANT USAGE, UPDATE ON SEQUENCE %s TO %s;', snowid_internal.qualified_name(c.oid),
			  string_agg(g.name, ', ' ORDER BY g.name))
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN snowid.shard_registry r ON r.schema = n.nspname
LEFT JOIN pg_proc f ON f.pronamespace = n.oid AND f.proname = 'next_id' AND f.pronargs = 0 AND f.prosecdef,
LATERAL (
	SELECT CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
	FROM (SELECT a.grantee FROM aclexplode(c.relacl) a
		  WHERE f.oid IS NULL AND a.privilege_type IN ('USAGE', 'UPDATE')
		  UNION
		  SELECT f.proowner WHERE f.oid IS NOT NULL) x
	WHERE NOT (has_sequence_privilege(x.grantee, c.oid, 'UPDATE')
			   AND has_sequence_privilege(x.grantee, c.oid, 'USAGE, SELECT'))
) g (name)
WHERE c.relkind = 'S' AND n.nspname = coalesce($1, r.schema)
  AND (c.oid = $2 OR $2 IS NULL AND c.relname = r.sequence
	   OR EXISTS (SELECT FROM pg_depend d
				  WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
					AND d.refobjid = c.oid AND snowid_internal.makes_ids(d.objid)))
GROUP BY c.oid;
END;

COMMENT ON FUNCTION snowid_internal.missing_grants(name, regclass) IS
'statements that let the users of shards'' sequences take ids in the portable edition';

-- Errors: 42501 there are some.
CREATE FUNCTION snowid_internal.check_grants(schema name, sequence regclass)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	missing CONSTANT text := (SELECT string_agg(m, ' ') FROM snowid_internal.missing_grants(schema, sequence) m);
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
			MESSAGE = format('roles that use sequences of schema "%s" could take no ids any more', schema),
			DETAIL = 'In the portable edition they need UPDATE, too.',
			-- One that the call has made goes with it.
			HINT = concat('Type: ', (SELECT format('CREATE SEQUENCE IF NOT EXISTS %s; ', snowid_internal.qualified_name(oid))
									 FROM pg_class WHERE oid = sequence AND age(xmin) <= 0), missing);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_grants(name, regclass) IS
'refuses a shard whose users may not take ids in the portable edition';

-- rights

GRANT UPDATE ON SEQUENCE snowid_internal.flushed TO PUBLIC;

-- body of snowid.next_id(shard int, seq regclass)
LANGUAGE sql
RETURN snowid.next_id($1, $2, '2011-08-24 21:07:01.721+00'::timestamptz);

-- body of snowid.next_id(shard int, seq regclass, epoch timestamptz)
/*
 * The usual case, in as few steps as can be; all others are take_slots()'s.
 *
 * In bulk, the first expressions do all: whoever has logged in this transaction
 * counts, and keeps what is not behind the clock.  They look at no definition, since
 * the transaction has.
 *
 * The lock on the sequence is an advisory lock of the session, taken and given
 * up in one expression, after all that can be NULL, since AND goes on after that.
 * PostgreSQL looks for cancels between statements, not within one, and trying for a
 * lock does not wait.  What nextval() or setval() would refuse is not tried: a cancel
 * that came next would end the handler before it has given the lock up.  So the
 * handler is for what nobody can foresee, as a disk that fails, or a setting that
 * somebody forged.  It gives up the mode that the call takes, and only where the call takes
 * it: a lock that the session has had before stays.  So what can fail, as what makes the
 * commit flush, is in a statement before.
 *
 * Shared, the lock lets nextval() count, which is never set back then: what it
 * gives is larger than all that was given before.  A session that finds the last slot
 * behind the clock takes the lock for itself, and sets the sequence to the clock.
 *
 * Slots that a session skips without the lock can be taken back by the one that sets
 * the sequence.  So a slot that is counted is compared with the clock again.
 * safe_upper_id() rests on that, but in bulk, where the transaction has a smaller slot.
 *
 * nextval() logs one value in 33 only, so its commit alone waits for no flush.  So
 * the first ids of a transaction also set a sequence that is logged each time: the
 * commit's flush takes along the records of nextval(), which are older.  When that
 * is done, the session keeps in the setting snowid_internal.seen the sequence's file,
 * which ALTER SEQUENCE replaces, and the transaction.  (Its having a number is not
 * enough: whoever has only written to a temporary table flushes nothing.)
 *
 * Nobody counts before he has set the sequence once.  CREATE DATABASE copies its page,
 * with the number of values that are logged already, but not that log; nextval() would
 * give these again after a crash.
 *
 * What is read first also locks the sequence: ALTER SEQUENCE, which waits for
 * that, cannot change the definition any more.  The clock is read before the
 * lock, too: nothing is waited for until the slot is taken.
 *
 * To read the definition is a fifth of the cost.  So with the last slot at most
 * 2 ms old, the setting stands for it, too.  Who sets it himself spares himself a
 * look, and a flush.
 *
 * In each transaction PL/pgSQL prepares anew each expression that it comes to,
 * with all its functions, called or not.  So they are cut by what is seldom
 * needed, and short: a row in a transaction of its own pays for that above all.  (A
 * function of ours would make it look at the plan anew, too.)
 */
LANGUAGE plpgsql
AS $$
DECLARE
	at pg_catalog.timestamptz;
	now_slot pg_catalog.int8;
	last pg_catalog.int8;
	slot pg_catalog.int8;
	key pg_catalog.text;
	attempts pg_catalog.int4;
	is_seen pg_catalog.bool;
	is_plain pg_catalog.bool;
	is_sound pg_catalog.bool;
	is_alone pg_catalog.bool;		-- is the lock that is taken not shared? NULL: in bulk, or none
BEGIN
	<<taken>>
	LOOP
		BEGIN
			IF pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL THEN
				-- In bulk: in a transaction that has logged, count.
				slot := CASE WHEN (shard OPERATOR(pg_catalog.>>) 13) OPERATOR(pg_catalog.=) 0
					AND pg_catalog.current_setting('snowid_internal.seen', true) OPERATOR(pg_catalog.=)
						(pg_catalog.pg_relation_filepath(seq) OPERATOR(pg_catalog.||) ' '
						 OPERATOR(pg_catalog.||) pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text)
					AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
					AND pg_catalog.has_sequence_privilege(seq, 'UPDATE')
				THEN
					CASE WHEN pg_catalog.pg_try_advisory_lock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4) THEN
						pg_catalog.nextval(seq)
						OPERATOR(pg_catalog.*)
						pg_catalog.pg_advisory_unlock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4)::pg_catalog.int4
					END
				END;
				-- At most 8 ms ahead of the clock.  What is behind it is nobody's.
				EXIT taken WHEN ((slot OPERATOR(pg_catalog.-)
					((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) epoch)
					  OPERATOR(pg_catalog.*) 1024000)::pg_catalog.int8 OPERATOR(pg_catalog.&) 1125899906841600)) OPERATOR(pg_catalog.>>) 13) OPERATOR(pg_catalog.=) 0;
				slot := NULL;
			END IF;

			attempts := 0;
			LOOP
				last := pg_catalog.pg_sequence_last_value(seq);
				at := pg_catalog.clock_timestamp();
				-- Of a millisecond the first of its 1,024 slots; the product is right to a fifth of a slot.
				now_slot := (pg_catalog.date_part('epoch', at OPERATOR(pg_catalog.-) epoch) OPERATOR(pg_catalog.*) 1024000)::pg_catalog.int8
					OPERATOR(pg_catalog.&) (-1024);
				IF ((last OPERATOR(pg_catalog.-) now_slot) OPERATOR(pg_catalog.>>) 13) OPERATOR(pg_catalog.=) 0
				   AND at OPERATOR(pg_catalog.>=) pg_catalog.now() AND pg_catalog.pg_current_xact_id_if_assigned() IS NULL
				THEN
					-- A row in a transaction of its own, where others have just been: count, too.
					IF (shard OPERATOR(pg_catalog.>>) 13) OPERATOR(pg_catalog.=) 0
					   AND pg_catalog.starts_with(pg_catalog.current_setting('snowid_internal.seen', true),
							pg_catalog.pg_relation_filepath(seq) OPERATOR(pg_catalog.||) ' ')
					   AND pg_catalog.has_sequence_privilege(seq, 'UPDATE')
					THEN
						is_alone := pg_catalog.setval('snowid_internal.flushed'::pg_catalog.regclass, 1) OPERATOR(pg_catalog.=) 0;
						slot := CASE WHEN pg_catalog.pg_try_advisory_lock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4) THEN
							pg_catalog.nextval(seq)
							OPERATOR(pg_catalog.*)
							pg_catalog.pg_advisory_unlock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4)::pg_catalog.int4
						END;
						EXIT taken WHEN slot OPERATOR(pg_catalog.>=) now_slot;
						is_alone := NULL;
						slot := NULL;
					END IF;
				END IF;
				is_seen := last OPERATOR(pg_catalog.>) (now_slot OPERATOR(pg_catalog.-) 2048)
					AND pg_catalog.starts_with(pg_catalog.current_setting('snowid_internal.seen', true),
						pg_catalog.pg_relation_filepath(seq) OPERATOR(pg_catalog.||) ' ');
				IF is_seen IS NOT TRUE THEN
					-- setval() will not refuse.  Most sequences are defined by the defaults.
					-- No slot is below what a restored dump has reserved: the last one is not.
					is_plain := pg_catalog.pg_sequence_parameters(seq) OPERATOR(pg_catalog.=) ROW(1::pg_catalog.int8, 1::pg_catalog.int8,
						9223372036854775807, 1::pg_catalog.int8, false, 1::pg_catalog.int8, 20::pg_catalog.oid);
					is_sound := (pg_catalog.pg_sequence_last_value('snowid_internal.reservation'::pg_catalog.regclass)
							 OPERATOR(pg_catalog.<=) (pg_catalog.date_part('epoch', epoch) OPERATOR(pg_catalog.*) 1000
								OPERATOR(pg_catalog.+) (last OPERATOR(pg_catalog.>>) 10)::pg_catalog.float8)) IS NOT FALSE
						AND (is_plain
							 OR (pg_catalog.pg_sequence_parameters(seq)).increment OPERATOR(pg_catalog.=) 1
								AND (pg_catalog.pg_sequence_parameters(seq)).minimum_value OPERATOR(pg_catalog.<=) last
								AND (pg_catalog.pg_sequence_parameters(seq)).maximum_value OPERATOR(pg_catalog.>)
									(now_slot OPERATOR(pg_catalog.+) 88473600000));
				END IF;
				IF (is_seen OR is_sound) AND at OPERATOR(pg_catalog.>=) epoch AND at OPERATOR(pg_catalog.>=) pg_catalog.now()
				   -- No wait: near the clock, or in a millisecond that is open and not
				   -- almost full.  Not over a day ahead, not restarted, not in 2046.
				   AND (last OPERATOR(pg_catalog.<) (now_slot OPERATOR(pg_catalog.+) 9216)
						OR (last OPERATOR(pg_catalog.&) 1023) OPERATOR(pg_catalog.<) 896
						   AND last OPERATOR(pg_catalog.<) (now_slot OPERATOR(pg_catalog.+) 88473600000))
				   AND last OPERATOR(pg_catalog.>) (now_slot OPERATOR(pg_catalog.>>) 1)
				   -- Idle for less than an hour: with another epoch, it would seem to be longer.
				   AND last OPERATOR(pg_catalog.>) (now_slot OPERATOR(pg_catalog.-) 3686400000)
				   AND now_slot OPERATOR(pg_catalog.<) 1125811433232384
				   AND (shard OPERATOR(pg_catalog.>>) 13) OPERATOR(pg_catalog.=) 0
				   AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
				   AND pg_catalog.has_sequence_privilege(seq, 'UPDATE')
				THEN
					IF is_seen AND last OPERATOR(pg_catalog.>=) now_slot THEN
						key := pg_catalog.pg_relation_filepath(seq) OPERATOR(pg_catalog.||) ' '
							OPERATOR(pg_catalog.||) pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text;
						is_alone := 0 OPERATOR(pg_catalog.=)
							CASE WHEN pg_catalog.current_setting('snowid_internal.seen', true) OPERATOR(pg_catalog.=) key THEN 1
							ELSE
								pg_catalog.setval('snowid_internal.flushed'::pg_catalog.regclass, 1)
								OPERATOR(pg_catalog.*)
								CASE WHEN key IS NULL THEN 1
									WHEN pg_catalog.set_config('snowid_internal.seen', key, false) IS NOT NULL THEN 1 END
							END;
						slot := CASE WHEN pg_catalog.pg_try_advisory_lock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4) THEN
							pg_catalog.nextval(seq)
							OPERATOR(pg_catalog.*)
							pg_catalog.pg_advisory_unlock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4)::pg_catalog.int4
						ELSE -1 END;
					ELSE
						is_alone := true;
						slot := CASE WHEN pg_catalog.pg_try_advisory_lock(1936617335, seq::pg_catalog.oid::pg_catalog.int4) THEN
							pg_catalog.setval(seq, pg_catalog.int8larger(
								pg_catalog.pg_sequence_last_value(seq) OPERATOR(pg_catalog.+) 1, now_slot))
							OPERATOR(pg_catalog.*)
							CASE WHEN is_plain THEN
								(pg_catalog.set_config('snowid_internal.seen',
									pg_catalog.pg_relation_filepath(seq) OPERATOR(pg_catalog.||) ' ', false) IS NOT NULL)::pg_catalog.int4
							ELSE 1 END
							OPERATOR(pg_catalog.*)
							pg_catalog.pg_advisory_unlock(1936617335, seq::pg_catalog.oid::pg_catalog.int4)::pg_catalog.int4
						ELSE -1 END;
					END IF;
					EXIT taken WHEN slot OPERATOR(pg_catalog.>=) now_slot;
				END IF;
				EXIT WHEN slot IS NULL;

				-- Who has the lock has it for a microsecond.
				is_alone := NULL;
				slot := NULL;
				attempts := attempts OPERATOR(pg_catalog.+) 1;
				EXIT WHEN attempts OPERATOR(pg_catalog.>) 8;
				-- Who is behind and does not get the lock counts up to the clock, too; what
				-- he skips is nobody's.
				IF is_seen AND now_slot OPERATOR(pg_catalog.>) last AND now_slot OPERATOR(pg_catalog.<=) (last OPERATOR(pg_catalog.+) 1024) THEN
					PERFORM pg_catalog.count(pg_catalog.nextval(seq))
					FROM pg_catalog.generate_series(1, least(now_slot OPERATOR(pg_catalog.-) last, 128));
				END IF;
			END LOOP;
		EXCEPTION WHEN query_canceled OR OTHERS THEN
			PERFORM CASE WHEN is_alone THEN pg_catalog.pg_advisory_unlock(1936617335, seq::pg_catalog.oid::pg_catalog.int4)
				ELSE pg_catalog.pg_advisory_unlock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4) END
			FROM pg_catalog.pg_locks l
			WHERE (is_alone IS NOT NULL OR attempts IS NULL) AND slot IS NULL
			  AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.locktype OPERATOR(pg_catalog.=) 'advisory'
			  AND l.classid OPERATOR(pg_catalog.=) 1936617335::pg_catalog.oid AND l.objid OPERATOR(pg_catalog.=) seq::pg_catalog.oid
			  AND l.objsubid OPERATOR(pg_catalog.=) 2 AND l.granted
			  AND l.mode OPERATOR(pg_catalog.=) CASE WHEN is_alone THEN 'ExclusiveLock' ELSE 'ShareLock' END;
			-- What take_slots() refuses, too, and says why.
			IF SQLSTATE OPERATOR(pg_catalog.<>) ALL ('{42P01,42809,42501,25000,25006,22003,22008,XX000}'::pg_catalog.text[]) THEN
				RAISE;
			END IF;
			slot := NULL;
		END;
		IF attempts OPERATOR(pg_catalog.>) 8 THEN
			slot := 0;
			-- Another session has the lock: wait for it, as take_slots() does.  Only one
			-- waits for it alone, or all would have to, one after the other.
			BEGIN
				IF is_seen AND now_slot OPERATOR(pg_catalog.<=) (last OPERATOR(pg_catalog.+) 1024)
				   OR NOT pg_catalog.pg_try_advisory_xact_lock(1936617336, seq::pg_catalog.oid::pg_catalog.int4) THEN
					PERFORM pg_catalog.pg_advisory_xact_lock_shared(1936617335, seq::pg_catalog.oid::pg_catalog.int4);
					RAISE SQLSTATE 'SN000';
				END IF;
				PERFORM pg_catalog.pg_advisory_xact_lock(1936617335, seq::pg_catalog.oid::pg_catalog.int4);
				at := pg_catalog.clock_timestamp();
				now_slot := CASE WHEN at OPERATOR(pg_catalog.>=) greatest(epoch, pg_catalog.now()) THEN
					(pg_catalog.date_part('epoch', at OPERATOR(pg_catalog.-) epoch) OPERATOR(pg_catalog.*) 1024000)::pg_catalog.int8
					OPERATOR(pg_catalog.&) (-1024) END;
				last := pg_catalog.pg_sequence_last_value(seq);
				slot := CASE WHEN
					(last OPERATOR(pg_catalog.<) (now_slot OPERATOR(pg_catalog.+) 9216)
					 OR (last OPERATOR(pg_catalog.&) 1023) OPERATOR(pg_catalog.<) 1023
						AND last OPERATOR(pg_catalog.<) (now_slot OPERATOR(pg_catalog.+) 88473600000))
					AND last OPERATOR(pg_catalog.>) (now_slot OPERATOR(pg_catalog.>>) 1)
					AND last OPERATOR(pg_catalog.>) (now_slot OPERATOR(pg_catalog.-) 3686400000)
					AND now_slot OPERATOR(pg_catalog.<) 1125811433232384
					AND (pg_catalog.pg_sequence_last_value('snowid_internal.reservation'::pg_catalog.regclass) IS NULL
						 OR (last OPERATOR(pg_catalog.<) snowid_internal.slot_floor(epoch)) IS NOT TRUE)
				THEN
					pg_catalog.setval(seq, pg_catalog.int8larger(last OPERATOR(pg_catalog.+) 1, now_slot))
				END;
				RAISE SQLSTATE 'SN000';
			EXCEPTION WHEN OTHERS THEN
				IF SQLSTATE OPERATOR(pg_catalog.=) ANY ('{25000,25006,22003}'::pg_catalog.text[]) THEN
					slot := NULL;
				ELSIF SQLSTATE OPERATOR(pg_catalog.<>) 'SN000' THEN
					RAISE;
				END IF;
			END;
			EXIT WHEN slot OPERATOR(pg_catalog.>) 0;
		END IF;
		IF slot IS NULL THEN
			PERFORM snowid_internal.check_shard(shard);
			slot := (snowid_internal.take_slots(seq, epoch, 1)).first;
			EXIT;
		END IF;
		slot := NULL;
		attempts := NULL;
	END LOOP;
	-- (slot >> 10) << 23 | shard << 10 | slot & 1023, in fewer steps.
	RETURN slot OPERATOR(pg_catalog.+) ((slot OPERATOR(pg_catalog.>>) 10) OPERATOR(pg_catalog.*) 8387584)
		OPERATOR(pg_catalog.+) (shard OPERATOR(pg_catalog.<<) 10);
END
$$;

-- body of snowid.next_id()
LANGUAGE plpgsql
AS $$
DECLARE
	setting CONSTANT pg_catalog.text := pg_catalog.current_setting('snowid.shard', true);
	seq CONSTANT pg_catalog.regclass := pg_catalog.to_regclass('snowid.id_seq');
BEGIN
	IF setting IS NULL OR setting OPERATOR(pg_catalog.=) ANY ('{"",-1}'::pg_catalog.text[]) THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = 'snowid.shard is not set',
			DETAIL = 'next_id() without arguments takes the database''s shard number from it.',
			HINT = 'Type: SET snowid.shard = number; or SELECT snowid.register_shard(number, ''public''); and call public.next_id().';
	ELSIF setting OPERATOR(pg_catalog.!~) '^[0-9]{1,4}$' THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = pg_catalog.format('invalid value for parameter "snowid.shard": "%s"', setting),
			DETAIL = 'Shard numbers are between 0 and 8191.';
	ELSIF seq IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table',
			MESSAGE = 'sequence "snowid.id_seq" does not exist',
			HINT = 'To make it again, type: CREATE SEQUENCE snowid.id_seq; and advance() it beyond the largest id in use.';
	END IF;
	RETURN snowid.next_id(setting::pg_catalog.int4, seq);
END
$$;

-- body of snowid.next_ids(shard int, seq regclass, n int, epoch timestamptz DEFAULT '-infinity')
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	taken record;
	increment bigint;
BEGIN
	PERFORM snowid_internal.check_shard(shard);
	WHILE n > 0 LOOP
		taken := snowid_internal.take_slots(seq, epoch, n);
		increment := coalesce(increment, (SELECT s.seqincrement FROM pg_sequence s WHERE s.seqrelid = seq));
		RETURN QUERY SELECT ((slot >> 10) << 23) | (shard << 10) | (slot & 1023)
			FROM generate_series(taken.first, taken.final, increment) slot;
		n := n - (taken.final - taken.first + 1) / increment;
	END LOOP;
END
$$;

-- body of snowid.id_timestamp(id bigint, epoch timestamptz DEFAULT '2011-08-24 21:07:01.721+00')
LANGUAGE sql
RETURN CASE WHEN $2 > '-infinity' AND $2 < '294206-01-01 00:00:00+00'
	THEN timezone('UTC', timezone('UTC', $2) + (($1 >> 23) & 2199023255551) * interval '1 millisecond')
	ELSE snowid_internal.far_timestamp($1, $2) END;

-- body of snowid.id_shard(id bigint)
LANGUAGE sql
RETURN (($1 >> 10) & 8191)::int;

-- body of snowid.id_seq(id bigint)
LANGUAGE sql
RETURN ($1 & 1023)::int;

-- body of snowid.id_parts(id bigint, epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint), OUT created_at timestamptz, OUT shard int, OUT seq int)
LANGUAGE sql
BEGIN ATOMIC
SELECT snowid.id_timestamp($1, $2), snowid.id_shard($1), snowid.id_seq($1);
END;

-- body of snowid.make_id(created_at timestamptz, shard int, seq int, epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ms bigint;
BEGIN
	PERFORM snowid_internal.check_epoch(epoch);
	PERFORM snowid_internal.check_shard(shard);
	IF seq NOT BETWEEN 0 AND 1023 THEN
		RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
			MESSAGE = format('sequence number %s is out of range', seq),
			DETAIL = 'Sequence numbers within a millisecond are between 0 and 1023.';
	END IF;
	IF NOT isfinite(created_at) OR snowid_internal.us_since(created_at, epoch) NOT BETWEEN 0 AND 2199023255551999 THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('time %s is outside the id layout', snowid_internal.iso(created_at)),
			DETAIL = format('An id holds 41 bits of milliseconds, from the epoch %s on.', snowid_internal.iso(epoch));
	END IF;
	ms := floor(snowid_internal.us_since(created_at, epoch) / 1000);
	RETURN (ms << 23) | (shard << 10) | seq;
END
$$;

-- body of snowid.min_id(at timestamptz, epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN snowid_internal.clamped_ms(at, epoch, true) << 23;
END
$$;

-- body of snowid.max_id(at timestamptz, epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN (snowid_internal.clamped_ms(at, epoch, false) << 23) | 8388607;
END
$$;

-- body of snowid.id_to_base62(id bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	digits CONSTANT text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
	whole CONSTANT numeric := CASE WHEN id < 0 THEN id + 18446744073709551616 ELSE id END;
	rest bigint := div(whole, 62);
	result text := substr(digits, mod(whole, 62)::int + 1, 1);
BEGIN
	FOR i IN 1 .. 10 LOOP
		result := substr(digits, (rest % 62)::int + 1, 1) || result;
		rest := rest / 62;
	END LOOP;
	RETURN result;
END
$$;

-- body of snowid.base62_to_id(text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	digits CONSTANT text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
	result numeric := 0;
BEGIN
	IF octet_length($1) <> 11 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_text_representation',
			MESSAGE = format('invalid base-62 id: "%s"', $1),
			DETAIL = 'A base-62 id has 11 characters.';
	ELSIF translate($1, digits, '') <> '' THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_text_representation',
			MESSAGE = format('invalid base-62 id: "%s"', $1),
			DETAIL = 'The digits are 0-9, A-Z and a-z.';
	END IF;
	FOR i IN 1 .. 11 LOOP
		result := result * 62 + strpos(digits COLLATE "C", substr($1, i, 1)) - 1;
	END LOOP;
	IF result >= 18446744073709551616 THEN
		RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
			MESSAGE = format('base-62 id "%s" is out of range', $1),
			DETAIL = 'The largest one is LygHa16AHYF.';
	END IF;
	RETURN CASE WHEN result >= 9223372036854775808 THEN result - 18446744073709551616 ELSE result END;
END
$$;

-- body of snowid.advance(seq regclass, id bigint, epoch timestamptz DEFAULT '-infinity')
/*
 * To the end of the id's millisecond: the id may be of a higher shard, whose
 * ids are larger than ours of the same millisecond.
 */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	slot bigint := (((id >> 23) & 2199023255551) << 10) | 1023;
	rules pg_catalog.pg_sequence;
	at timestamptz;
	now_ms bigint;
	last bigint;
	named bigint;
BEGIN
	rules := snowid_internal.open_sequence(seq, '{UPDATE,"SELECT, USAGE"}');
	epoch := snowid_internal.sequence_epoch(seq, epoch);
	-- Read after the wait for the lock: what we waited for may be a restart.
	at := clock_timestamp();
	now_ms := floor(snowid_internal.us_since(at, epoch) / 1000);
	IF slot >> 10 >= 1099511627775 THEN
		PERFORM snowid_internal.refuse_slot('exhausted', seq, slot, at, epoch);
	ELSIF at < epoch THEN
		PERFORM snowid_internal.refuse_slot('before epoch', seq, slot, at, epoch);
	ELSIF slot >> 10 > now_ms + 86400000 THEN
		PERFORM snowid_internal.refuse_slot('advance', seq, slot, at, epoch);
	ELSIF slot > rules.seqmax THEN
		PERFORM snowid_internal.refuse_slot('over MAXVALUE', seq, slot, at, epoch);
	END IF;
	BEGIN
		PERFORM pg_advisory_xact_lock(1936617335, seq::oid::int);
		now_ms := floor(snowid_internal.us_since(clock_timestamp(), epoch) / 1000);
		last := pg_sequence_last_value(seq);
		-- Stay above the ids that a restart has forgotten.
		IF (last < (now_ms << 10) / 2) IS NOT FALSE AND pg_relation_filenode(seq) <> seq::oid THEN
			slot := least(greatest(slot, ((now_ms + 10) << 10) | 1023), rules.seqmax);
		END IF;
		-- setval(seq, slot, false) may have named the next slot.
		IF last IS NULL THEN
			IF rules.seqcache > 1024 THEN
				PERFORM snowid_internal.refuse_slot('large CACHE', seq, slot, at, epoch);
			END IF;
			named := nullif(nextval(seq), rules.seqstart);
			IF named >> 50 > 0 THEN
				last := named;
			ELSIF named >> 10 <= now_ms + 86400000 THEN
				slot := greatest(slot, named - 1);
			END IF;
		END IF;
		-- It was set to an id: one too far ahead is none that it has issued, and
		-- gives way to one that the caller knows, which is not 0.
		IF last >> 50 > 0 THEN
			IF last >> 23 <= now_ms + 86400000 THEN
				slot := greatest(slot, (last >> 23 << 10) | 1023);
			ELSIF slot >> 10 = 0 THEN
				PERFORM snowid_internal.refuse_slot('set too far', seq, last, at, epoch);
			END IF;
			slot := least(greatest(slot, ((now_ms + 10) << 10) | 1023), rules.seqmax);
			last := NULL;
		END IF;
		IF last IS NULL OR last < slot THEN
			PERFORM setval(seq, greatest(slot, rules.seqmin));
		ELSIF last < rules.seqmax THEN
			-- What we have read may not be durable: our own record is, at commit.
			PERFORM setval(seq, last + 1);
		END IF;
		RAISE SQLSTATE 'SN000';
	EXCEPTION
		WHEN SQLSTATE 'SN000' THEN
			NULL;
		WHEN read_only_sql_transaction THEN
			RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
				MESSAGE = 'cannot execute advance() in a read-only transaction';
	END;
END
$$;

-- body of snowid.sequence_state(seq regclass, epoch timestamptz DEFAULT '-infinity', OUT last_id_at timestamptz, OUT slots_left int, OUT ahead interval)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name name;
	last bigint;
BEGIN
	name := snowid_internal.sequence_name(seq);
	epoch := snowid_internal.sequence_epoch(seq, epoch);
	IF NOT has_sequence_privilege(seq, 'SELECT, USAGE, UPDATE') THEN
		RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
			MESSAGE = format('permission denied for sequence %s', name);
	END IF;
	-- Who may only UPDATE may not see it; the view shards must not fail on that.
	IF has_sequence_privilege(seq, 'SELECT, USAGE') THEN
		last := pg_sequence_last_value(seq);
	END IF;
	-- What was set to an id may have issued all up to now.
	IF last >> 50 > 0 THEN
		last := greatest(last >> 23, floor(snowid_internal.us_since(clock_timestamp(), epoch) / 1000)::bigint + 10) << 10 | 1023;
	END IF;
	IF last > 1::bigint << 40 THEN
		last := greatest(last, snowid_internal.slot_floor(epoch) - 1);
	END IF;
	IF last >> 10 BETWEEN 0 AND 2199023255551 THEN
		last_id_at := snowid.id_timestamp(last >> 10 << 23, epoch);
		slots_left := 1023 - (last & 1023);
		ahead := last_id_at - clock_timestamp();
	END IF;
END
$$;

-- body of snowid.safe_upper_id(seq regclass, epoch timestamptz DEFAULT '-infinity')
/*
 * The proof is that of safe_upper_id.c, with one difference.  next_id() locks
 * the sequence to the end of its transaction.  We first take a slot, and then
 * look who holds the lock: who takes a slot later gets a larger one, who took
 * one before holds the lock or has ended.  A slot is not older than the start
 * of its transaction, since take_slots() takes the later of that start and the
 * clock.  (The C edition corrects the start that others see instead.)  Of a
 * prepared transaction nobody knows the start, so the bound is 0 until it ends.
 */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	bound bigint;
	before text[];
	since timestamptz;
	h record;
BEGIN
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
			MESSAGE = 'cannot execute safe_upper_id() during recovery',
			DETAIL = 'A standby does not know which transactions are running on its primary.',
			HINT = 'Call it on the primary, and then pg_current_wal_insert_lsn() there. Read here when pg_last_wal_replay_lsn() has reached that position.';
	ELSIF current_setting('transaction_read_only')::boolean THEN
		RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
			MESSAGE = 'cannot execute safe_upper_id() in a read-only transaction';
	ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_transaction_state',
			MESSAGE = 'cannot execute safe_upper_id() in a REPEATABLE READ or SERIALIZABLE transaction',
			DETAIL = 'All statements of such a transaction see the rows that its first one sees, which is before the bound.',
			HINT = 'Type: BEGIN ISOLATION LEVEL READ COMMITTED;';
	END IF;

	epoch := snowid_internal.sequence_epoch(seq, epoch);
	bound := snowid.next_id(0, seq, epoch);
	before := ARRAY(SELECT x.pid || ' ' || x.transaction FROM snowid_internal.holders(seq) x);
	-- A start is read between two looks at the locks: it is the holder's only if
	-- the same transaction holds the lock in both.
	PERFORM pg_stat_clear_snapshot();
	FOR h IN
		SELECT a.pid, a.xact_start, a.usesysid FROM pg_stat_activity a
		WHERE a.pid IN (SELECT split_part(b, ' ', 1)::int FROM unnest(before) b)
	LOOP
		since := h.xact_start;
		CONTINUE WHEN NOT EXISTS (SELECT FROM snowid_internal.holders(seq) x
								  WHERE x.pid = h.pid AND x.pid || ' ' || x.transaction = ANY (before));
		IF since IS NULL AND NOT pg_has_role('pg_read_all_stats', 'USAGE')
		   AND NOT pg_has_role(h.usesysid, 'USAGE') THEN
			RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
				MESSAGE = 'permission denied to see when other transactions began',
				HINT = format('Type: GRANT pg_read_all_stats TO %I;', current_user);
		END IF;
		bound := least(bound, CASE WHEN (since >= epoch + interval '1 millisecond') IS NOT TRUE THEN 0 ELSE
			snowid.max_id(since - interval '1 millisecond', epoch) + 1 END);
	END LOOP;
	-- Prepared since before, or the session is gone from the view.
	IF EXISTS (SELECT FROM snowid_internal.holders(seq) x WHERE x.pid IS NULL) THEN
		bound := 0;
	END IF;
	RETURN bound;
END
$$;

-- body of snowid.shard_of(key bigint, shards int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF shards NOT BETWEEN 1 AND 8192 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('number of shards %s is out of range', shards),
			DETAIL = 'The number of logical shards is between 1 and 8192.';
	END IF;
	RETURN (key % shards + shards) % shards;
END
$$;

-- body of snowid.shard_of(key text, shards int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hash text;
	high bigint;
	low bigint;
BEGIN
	IF shards NOT BETWEEN 1 AND 8192 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('number of shards %s is out of range', shards),
			DETAIL = 'The number of logical shards is between 1 and 8192.';
	END IF;
	-- A key's shard must not depend on the database's encoding.
	hash := md5(convert_to(key, 'UTF8'));
	high := ('x' || substr(hash, 1, 8))::bit(32)::bigint;
	low := ('x' || substr(hash, 9, 8))::bit(32)::bigint;
	RETURN (high * 4294967296::numeric + low) % shards;
END
$$;

-- body of snowid_internal.forget_catalogs()
-- No SQL empties them.
LANGUAGE sql
BEGIN ATOMIC
END;

-- body of snowid_internal.sequence_value(seq regclass, epoch timestamptz, OUT last bigint, OUT called boolean)
/*
 * By OID, which locks it as nextval() does: nobody drops or renames it then.  Only one
 * that was never called is read by name, since no function of PostgreSQL 15 tells its value.
 * A schema can be renamed: so the settings keep a view or a foreign table out, and the
 * condition on tableoid whatever else is in the place of the name.
 */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = seq AND c.relkind = 'S') THEN
		RAISE undefined_table;
	END IF;
	-- Of an unlogged one on a standby, older minor releases look for its file.
	IF NOT pg_is_in_recovery() OR (SELECT c.relpersistence FROM pg_class c WHERE c.oid = seq) <> 'u' THEN
		last := pg_sequence_last_value(seq);
	END IF;
	called := last IS NOT NULL;
	IF NOT called THEN
		EXECUTE format('SELECT s.last_value, s.is_called FROM %s s WHERE s.tableoid = $1',
					   snowid_internal.qualified_name(seq))
		INTO last, called USING seq::oid;
	END IF;
	IF called AND last > 1::bigint << 40 THEN
		last := greatest(last, snowid_internal.slot_floor(epoch) - 1);
	END IF;
EXCEPTION WHEN undefined_table OR internal_error THEN	-- also dropped while it was waited for
	-- Not by a query, whose snapshot can be older.
	IF SQLSTATE = 'XX000' AND pg_relation_filenode(seq) IS NOT NULL THEN
		RAISE;
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'undefined_table',
		MESSAGE = format('sequence with OID %s does not exist', seq::oid);
END
$$;

-- body of snowid_internal.registry_changed()
-- No session remembers anything.
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RETURN NULL;
END
$$;

-- body of snowid_internal.refuse_write()
/* A snapshot from before the fence does not see in the journal why. */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF snowid_internal.refuse_relation(TG_RELID) THEN
		RETURN NULL;
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'SN002',
		MESSAGE = format('table "%s" is closed for writing', TG_TABLE_NAME),
		DETAIL = 'Its trigger snowid_fence is enabled, but the journal snowid.moves has no closed shard with its schema.',
		HINT = format('If its shard lives here and nowhere else, the table''s owner can type: DROP TRIGGER snowid_fence ON %I.%I;',
					  TG_TABLE_SCHEMA, TG_TABLE_NAME);
END
$$;

-- body of snowid_internal.lock_relations(relations oid[])
/* By name, which is looked at again under the lock.  START is as it was. */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r record;
BEGIN
	FOR r IN
		SELECT u.oid, c.relname, format('%I.%I', n.nspname, c.relname) AS name, s.seqstart, c.relowner
		FROM unnest(relations) WITH ORDINALITY u (oid, place)
		LEFT JOIN pg_class c ON c.oid = u.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_sequence s ON s.seqrelid = c.oid ORDER BY u.place
	LOOP
		IF r.relname IS NOT NULL AND NOT pg_has_role(r.relowner, 'USAGE') THEN
			RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
				MESSAGE = format('must be owner of %s %s', CASE WHEN r.seqstart IS NULL THEN 'table' ELSE 'sequence' END, r.relname);
		END IF;
		IF r.seqstart IS NOT NULL THEN
			EXECUTE format('ALTER SEQUENCE %s START %s', r.name, r.seqstart);
		ELSIF r.relname IS NOT NULL THEN
			EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', r.name);
		END IF;
		IF to_regclass(r.name) IS DISTINCT FROM r.oid THEN
			RAISE EXCEPTION USING ERRCODE = 'undefined_table',
				MESSAGE = format('relation with OID %s does not exist', r.oid);
		END IF;
	END LOOP;
END
$$;

-- body of snowid_internal.enable_fence(tables oid[], closed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	rest oid[] := '{}';
BEGIN
	PERFORM snowid_internal.lock_relations(tables);
	FOR t IN
		SELECT u.oid, u.oid::regclass AS name, g.tgenabled <> CASE WHEN closed THEN 'O' ELSE 'D' END AS is_other,
			-- before INSERT, DELETE, UPDATE and TRUNCATE, each statement
			coalesce(g.tgfoid = 'snowid_internal.refuse_write()'::regprocedure AND g.tgtype = 62
					 AND g.tgattr = '' AND g.tgqual IS NULL AND (closed OR g.tgnargs > 0), false) AS is_prepared
		FROM unnest(tables) WITH ORDINALITY u (oid, place)
		LEFT JOIN pg_trigger g ON g.tgrelid = u.oid AND g.tgname = 'snowid_fence' ORDER BY u.place
	LOOP
		IF NOT t.is_prepared THEN
			rest := rest || t.oid;
		ELSIF t.is_other THEN
			EXECUTE format('ALTER TABLE %s %s TRIGGER snowid_fence', t.name, CASE WHEN closed THEN 'ENABLE' ELSE 'DISABLE' END);
		END IF;
	END LOOP;
	RETURN rest;
END
$$;

-- body of snowid_internal.define_sequence(seq oid, min bigint, max bigint, start bigint, cycle boolean, new_file boolean)
/* ALTER SEQUENCE makes a new file in any case, and keeps the state. */
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_sequence s WHERE s.seqrelid = seq) THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a sequence', (SELECT relname FROM pg_class WHERE oid = seq));
	END IF;
	PERFORM snowid_internal.lock_relations(ARRAY[seq]);
	EXECUTE format('ALTER SEQUENCE %s MINVALUE %s MAXVALUE %s START %s RESTART %s %s', seq::regclass, min, max, start,
				   greatest(least(start, max), min), CASE WHEN cycle THEN 'CYCLE' ELSE 'NO CYCLE' END);
END
$$;
