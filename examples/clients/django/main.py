"""Photos of a user, in the shard where the user lives.

    /usr/bin/python3 main.py 31341
"""
import os
import sys
from datetime import timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from photos.models import IdShard, IdTimestamp, MinId, Photo
from sharding import shard_of


def main(user_id):
    with shard_of(user_id) as shard:
        print(f"user {user_id} lives in shard {shard}")
        first = Photo.objects.create(user_id=user_id, caption="the first")
        print(f"inserted {first.id}")

    with shard_of(user_id):
        more = Photo.objects.bulk_create(
            Photo(user_id=user_id, caption=f"photo {n}") for n in range(1, 1001)
        )
        print(f"inserted {len(more)} more, the last {more[-1].id}")

    with shard_of(user_id):
        first = Photo.objects.annotate(made=IdTimestamp("id"), shard=IdShard("id")).get(id=first.id)
        print(f"made {first.made.isoformat()} in shard {first.shard}")

        photos = Photo.objects.filter(
            id__gte=MinId(first.made),
            id__lt=MinId(first.made + timedelta(minutes=1)),
        ).order_by("-id")
        print(f"in the minute from then: {len(photos)} photos, the newest {photos[0].id}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
