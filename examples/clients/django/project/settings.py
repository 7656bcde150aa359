import os

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
    },
}
INSTALLED_APPS = ["photos"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
