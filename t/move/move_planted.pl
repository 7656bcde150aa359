# Nobody who may only create functions has snowid-move run them.  On all three
# servers each database says search_path = public, pg_catalog, and public has a
# namesake of every function and operator of pg_catalog, with the very same
# arguments.  They write a line into the server's log when they run; while the
# program is at work, none does.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
my $c = move_node('c');
$_->start for $a, $b, $c;
make_shard($a, 5, 'insta5');
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $b, $c;
$c->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (5, 'insta5', 'host=a')});

# What has one result, and takes and returns what PL/pgSQL can.
my $plant = q{
SET search_path = pg_catalog, pg_temp;
CREATE ROLE planter;
GRANT CREATE ON SCHEMA public TO planter;
DO $do$
DECLARE
	f record;
BEGIN
	FOR f IN
		SELECT proname, pg_get_function_result(oid) AS result, proretset,
			   (SELECT string_agg(t::regtype::text, ', ' ORDER BY n)
				FROM unnest(proargtypes::oid[]) WITH ORDINALITY a (t, n)) AS args
		FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0
		  AND proargmodes IS NULL
		  AND NOT EXISTS (SELECT FROM pg_type y WHERE (y.oid = ANY (proargtypes) OR y.oid = prorettype)
						  AND y.typtype = 'p' AND y.typname NOT LIKE 'any%' AND y.typname NOT IN ('void', 'record'))
		  AND NOT EXISTS (SELECT FROM pg_type y WHERE y.oid = ANY (proargtypes) AND y.typname = 'any')
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql SET search_path = pg_catalog AS %L',
				f.proname, f.args, f.result,
				format('BEGIN RAISE LOG ''PLANTED %s as %%'', current_user; RETURN%s; END', f.proname,
					CASE WHEN f.proretset OR f.result = 'void' THEN '' ELSE ' NULL' END));
			EXECUTE format('ALTER FUNCTION public.%I(%s) OWNER TO planter', f.proname, f.args);
		EXCEPTION WHEN invalid_function_definition OR feature_not_supported OR datatype_mismatch OR undefined_object THEN
			NULL;
		END;
	END LOOP;

	-- Better fits for literals of no type yet.
	FOR f IN SELECT * FROM (VALUES ('format', 'text, int, text', 'text'), ('format', 'text, text, text', 'text'),
			('concat', 'text, text, text', 'text'), ('concat_ws', 'text, text, text', 'text'),
			('jsonb_build_object', 'text, text', 'jsonb'), ('num_nulls', 'text', 'int')) v (proname, args, result)
	LOOP
		EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql SET search_path = pg_catalog AS %L',
			f.proname, f.args, f.result, format('BEGIN RAISE LOG ''PLANTED %s as %%'', current_user; RETURN NULL; END', f.proname));
	END LOOP;

	FOR f IN
		SELECT oprname, p.oid::regproc AS code, p.proname, oprleft::regtype AS lt, oprright::regtype AS rt
		FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0
		  AND EXISTS (SELECT FROM pg_proc q WHERE q.proname = p.proname AND q.proargtypes = p.proargtypes
					  AND q.pronamespace = 'public'::regnamespace)
	LOOP
		EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
			f.oprname, f.lt, f.rt, f.proname);
	END LOOP;
END $do$;
ALTER DATABASE postgres SET search_path = public, pg_catalog;
};
$_->safe_psql('postgres', $plant) for $a, $b, $c;
my $planted = q{SET search_path = pg_catalog; SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace};
cmp_ok($_->safe_psql('postgres', $planted), '>', 1500, $_->name . ': functions are planted') for $a, $b, $c;

# They work: who does not look after his search path runs them.
my $log = -s $c->logfile;
$c->psql('postgres', q{SELECT format('%s', 1, 'x') WHERE 'a'::text = 'a'::text});
like(slurp_file($c->logfile, $log), qr/PLANTED/, 'what is planted would run');

# Run a command; on no server does it run what is planted.
sub clean_ok
{
	my ($command, $options, $name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %end = map { $_->name => -s $_->logfile } $a, $b, $c;

	moves_ok($a, $b, 5, [ $command, @$options ], $code // 0, $name);
	for my $node ($a, $b, $c)
	{
		my %ran = map { $_ => 1 } slurp_file($node->logfile, $end{ $node->name }) =~ /PLANTED (.*)/g;
		is_deeply(\%ran, {}, "$name: nothing that is planted runs on " . $node->name);
	}
	return;
}

my @registry = ('--registry', $c->connstr('postgres'));
clean_ok('plan', \@registry, 'plan');
clean_ok('move', [ @registry, '--stop-after', 'copied' ], 'copied');
clean_ok('status', [], 'status', 1);
clean_ok('abort', [], 'abort');
clean_ok('move', [ @registry, '--reverse', '--verify', 'checksums' ], 'moved');
clean_ok('back', [], 'back');
clean_ok('finish', [], 'finish');

done_testing();
