from django.db import models


class Photo(models.Model):
    user_id = models.BigIntegerField()
    caption = models.TextField()

    class Meta:
        db_table = "photos"
