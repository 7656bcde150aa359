-- What create --like asks of the shard that it is like.

SELECT $$
= (SELECT oid FROM pg_namespace WHERE nspname = :'schema')
$$ AS in_shard \gset

-- As everywhere in this program: who would gain nothing if we ran his code.
SELECT $$
SELECT oid FROM pg_roles WHERE pg_has_role(oid, session_user, 'MEMBER')
$$ AS trusted_roles \gset

\ir ../../common/shared.sql

-- arguments: schema
\echo code_looked_for_sql
:code_looked_for;

-- arguments: other
\echo better_fits_sql
:better_fits ORDER BY 1 LIMIT 1;
