import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from django.db import connections
from sharding import current_server, in_shard_of


def port(shard):
    with connections[current_server.get()].cursor() as cursor:
        cursor.execute("INSERT INTO photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port')")
        return cursor.fetchone()[0]


for line in sys.stdin:
    try:
        print(in_shard_of(31341, port), flush=True)
    except Exception as error:
        print(f"lost {error!r}".replace("\n", " "), flush=True)
