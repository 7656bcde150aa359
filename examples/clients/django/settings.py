"""The first server; those that shards have moved to, sharding.py adds."""
import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ.get("PGHOST", ""),
        "PORT": os.environ.get("PGPORT", ""),
        "NAME": os.environ.get("PGDATABASE", "app"),
        "USER": os.environ.get("PGUSER", "app"),
        # In PgBouncer's transaction mode a cursor ends with its transaction.
        "DISABLE_SERVER_SIDE_CURSORS": True,
    },
}
DATABASE_ROUTERS = ["sharding.Router"]
INSTALLED_APPS = ["photos"]
USE_TZ = True
