-- Long queries that are no checks.
\ir common.sql

\echo standby_name_sql
:standby_name;

-- arguments: schemas
\set users_of :'schemas'
\echo outside_users_sql
:outside_users;
