import sys

from photos import in_shard_of
from sqlalchemy import text

PORT = text("INSERT INTO insta1341.photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port')")

for line in sys.stdin:
    try:
        print(in_shard_of(31341, lambda session: session.scalar(PORT)), flush=True)
    except Exception as error:
        print(f"lost {error!r}".replace("\n", " "), flush=True)
