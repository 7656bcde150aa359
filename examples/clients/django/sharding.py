"""Sends a user's queries to the user's shard.

    in_shard_of(user_id, lambda shard: Photo.objects.create(...))

The router chooses the server, the search path the schema.  The path is set for
one transaction, so that it neither gets lost nor stays behind in PgBouncer's
transaction mode.
"""
import time
from contextvars import ContextVar

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction

try:
    from psycopg.conninfo import conninfo_to_dict as parse_dsn
except ImportError:
    from psycopg2.extensions import parse_dsn

SHARDS = 2000
# SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
# copy that the move has left has been renamed, or dropped.
REFUSALS = ["SN001", "SN002", "3F000", "42P01"]

homes = {}  # by shard, where it is not the default database
current_server = ContextVar("current_server")


class Router:
    def db_for_read(self, model, **hints):
        return current_server.get(None)

    db_for_write = db_for_read


def in_shard_of(user_id, work, seconds=30):
    """Returns work(shard), which is done in one transaction.

    It must not return a QuerySet that has yet to be read.  If the server refuses it
    since the shard has moved, nothing of it has happened, and it is done again at
    the new home.
    """
    shard = user_id % SHARDS
    deadline = time.monotonic() + seconds
    while True:
        server = homes.get(shard, DEFAULT_DB_ALIAS)
        token = current_server.set(server)
        try:
            # durable: within another shard's block the path would be wrong after it.
            with transaction.atomic(using=server, durable=True):
                with connections[server].cursor() as cursor:
                    cursor.execute(f"SET LOCAL search_path = insta{shard}")
                return work(shard)
        except DatabaseError as error:
            # Of psycopg 3, or of psycopg2.
            state = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
            if state not in REFUSALS or time.monotonic() > deadline:
                if not state or state.startswith(("57P", "25006")):
                    homes.pop(shard, None)  # that server may be no more; the first one knows
                raise
            with connections[server].cursor() as cursor:
                cursor.execute("SELECT snowid.shard_home(%s)", [shard])
                home = cursor.fetchone()[0]
            if home == "missing" or home == "here" and not state.startswith("SN"):
                raise
        finally:
            current_server.reset(token)
        if home not in ("here", "closed"):
            add_server(home)
            homes[shard] = home
        if state == "SN002" or home == "closed":
            time.sleep(0.1)


def add_server(home):
    """Lets Django know a home, a connection string as the registry has it, under its
    own name.  What it lacks is as in the default database."""
    if home not in connections.databases:
        default = connections[DEFAULT_DB_ALIAS].settings_dict
        given = parse_dsn(home)
        settings = {
            name: given.pop(key)
            for name, key in [
                ("HOST", "host"), ("PORT", "port"), ("NAME", "dbname"), ("USER", "user"), ("PASSWORD", "password"),
            ]
            if key in given
        }
        connections.databases[home] = {**default, **settings, "OPTIONS": {**default["OPTIONS"], **given}}
