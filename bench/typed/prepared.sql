-- typed5.next_id(), prepared
-- timed
\if :is_warm = 0
	PREPARE taken AS SELECT typed5.next_id();
	\set is_warm 1
\endif
EXECUTE taken;
