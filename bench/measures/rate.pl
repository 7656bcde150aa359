# What one sequence gives when sessions ask it for more than it may, on the server's own
# clock: per cent of 1,024,000 ids a second, by the times inside the ids and by the
# clock, and how far an id was ahead of that.
#
# Each session counts its ids by millisecond, and reads the clock after each; so every
# id is counted, and the lead is taken where the id was made.  All sessions run
# through the whole time that counts, and begin before it: at first, a sequence may
# give 10 ms in advance.
use strict;
use warnings;

use Bench;
use Bench::Session;

# A session's ids, until the time that ends it.
sub take_ids
{
	my ($who, $seconds) = @_;
	return qq{SET statement_timeout = '@{[$seconds + 60]}s';
INSERT INTO rate_begun VALUES ($who);
DO \$\$
DECLARE
	until timestamptz;
BEGIN
	LOOP
		SELECT at INTO until FROM rate_end;
		EXIT WHEN FOUND;
		PERFORM pg_sleep(0.01);
	END LOOP;
	WHILE clock_timestamp() < until LOOP
		INSERT INTO rate_ids
		SELECT $who, id >> 23, count(*), min(at), max(at)
		FROM (SELECT snowid.next_id(0, 'rate_seq') AS id, clock_timestamp() AS at
			  FROM generate_series(1, 10000)) ids
		GROUP BY id >> 23;
	END LOOP;
END
\$\$;};
}

# The three figures; nothing if a session could not begin in time.
sub rate
{
	my ($sessions, $seconds) = @_;

	$session->run(q{DROP SEQUENCE IF EXISTS rate_seq;
DROP TABLE IF EXISTS rate_begun, rate_end, rate_ids;
CREATE SEQUENCE rate_seq;
CREATE TABLE rate_begun (session int);
CREATE TABLE rate_end (at timestamptz);
CREATE UNLOGGED TABLE rate_ids (session int, ms bigint, ids bigint, first_read timestamptz, last_read timestamptz);});
	my @sessions = map { Bench::Session->new } 1 .. $sessions;
	$sessions[$_]->ask(take_ids($_, $seconds)) for 0 .. $#sessions;

	# When all are there, say when the time that counts is over.
	sleep 0.01 until ($session->run('SELECT count(*) FROM rate_begun'))[0] == $sessions;
	my ($end) = $session->run("INSERT INTO rate_end VALUES (clock_timestamp() + interval '$seconds.5 s') RETURNING at");
	$_->answer for @sessions;
	my ($figures) = $session->run(qq{WITH span AS (
	SELECT snowid.min_id('$end'::timestamptz - interval '$seconds s') >> 23 AS since, snowid.min_id('$end') >> 23 AS until
), whole AS (
	SELECT ms, sum(ids) AS ids, min(first_read) AS first_read, max(last_read) AS last_read
	FROM rate_ids, span WHERE ms >= since AND ms < until GROUP BY ms
)
SELECT round(sum(ids) / 10.24 / (until - since), 3),
	round(sum(ids) / 10240 / extract(epoch FROM max(last_read) - min(first_read))::numeric, 3),
	round(max(extract(epoch FROM snowid.id_timestamp(ms << 23) - first_read) * 1000)::numeric, 3)
FROM whole, span
WHERE (SELECT max(began) FROM (SELECT min(ms) AS began FROM rate_ids GROUP BY session) b) < since
GROUP BY since, until});
	return split /\|/, $figures // '';
}

measure
	unit => '%',
	title => 'One sequence asked for all that it may give',
	rounds => [ 1, 5 ], seconds => [ 2, 3 ],
	xs => [ [ 1, 4 ], [ 1, 2, 4, 8, 16 ] ],
	run => sub {
		my ($name, $now) = @_;

		for my $round (1 .. $now->{rounds})
		{
			for my $x (@{ $now->{xs} })
			{
				say_progress("$name, round $round of $now->{rounds}: $x sessions");
				my @figures;
				for (1 .. 3) { @figures = rate($x, $now->{seconds}) unless @figures }
				@figures or die "a session began too late; is the machine busy?\n";
				my $variant = { name => 'next_id', label => 'next_id' };
				record($name, $variant, $x, $figures[0]);
				record('rate_by_clock', $variant, $x, $figures[1], '%');
				record('ahead', $variant, $x, $figures[2], 'ms');
			}
		}
	};

1;
