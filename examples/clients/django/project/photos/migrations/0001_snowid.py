"""snowid.sql is a copy of portable/snowid.sql, or says CREATE EXTENSION snowid."""
from pathlib import Path

from django.db import migrations


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.RunSQL(Path("snowid.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL("SELECT snowid.register_shard(5, 'public')", migrations.RunSQL.noop),
    ]
