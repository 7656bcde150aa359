from django.db import models


class Photo(models.Model):
    # Django leaves it out of an INSERT and reads it back with RETURNING; the
    # table's DEFAULT makes it.
    id = models.BigAutoField(primary_key=True)
    user_id = models.BigIntegerField()
    caption = models.TextField()

    class Meta:
        db_table = "photos"
        managed = False


class MinId(models.Func):
    """The smallest id of a time."""

    function = "snowid.min_id"
    output_field = models.BigIntegerField()


class IdTimestamp(models.Func):
    function = "snowid.id_timestamp"
    output_field = models.DateTimeField()


class IdShard(models.Func):
    function = "snowid.id_shard"
    output_field = models.IntegerField()
