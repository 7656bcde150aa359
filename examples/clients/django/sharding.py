"""Sends a user's queries to the user's shard.

    with shard_of(user_id):
        Photo.objects.create(...)

The router chooses the server, the search path the schema.  The path is set for
one transaction, so that it neither gets lost nor stays behind in PgBouncer's
transaction mode.
"""
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import connections, transaction

SHARDS = 2000
# The first shard of each server, and its name in DATABASES.
SERVERS = {0: "default"}

current_server = ContextVar("current_server")


class Router:
    def db_for_read(self, model, **hints):
        return current_server.get(None)

    db_for_write = db_for_read


@contextmanager
def shard_of(user_id):
    shard = user_id % SHARDS
    server = SERVERS[max(first for first in SERVERS if first <= shard)]
    token = current_server.set(server)
    try:
        # durable: within another shard's block the path would be wrong after it.
        with transaction.atomic(using=server, durable=True):
            with connections[server].cursor() as cursor:
                cursor.execute(f"SET LOCAL search_path = insta{shard}")
            yield shard
    finally:
        current_server.reset(token)
