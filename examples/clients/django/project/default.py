"""What a migration does after the one that Django has made for a table."""
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("photos", "0002_photo")]
    operations = [
        # In the place of Django's bigserial.
        migrations.RunSQL("SELECT snowid.set_default('photos')", migrations.RunSQL.noop),
    ]
