"""Photos of a user, in the shard where the user lives.

    /usr/bin/python3 main.py 31341
"""
import os
import sys
from datetime import timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from django.http import JsonResponse
from photos.models import IdShard, IdTimestamp, MinId, Photo
from sharding import in_shard_of


def main(user_id):
    def insert(shard):
        print(f"user {user_id} lives in shard {shard}")
        return Photo.objects.create(user_id=user_id, caption="the first")

    first = in_shard_of(user_id, insert)
    print(f"inserted {first.id}")
    answer = JsonResponse({"id": str(first.id)}, json_dumps_params={"separators": (",", ":")})
    print(f"in JSON: {answer.content.decode()}")

    more = in_shard_of(user_id, lambda shard: Photo.objects.bulk_create(
        Photo(user_id=user_id, caption=f"photo {n}") for n in range(1, 1001)
    ))
    print(f"inserted {len(more)} more, the last {more[-1].id}")

    first = in_shard_of(user_id, lambda shard: Photo.objects.annotate(
        made=IdTimestamp("id"), shard=IdShard("id")
    ).get(id=first.id))
    print(f"made {first.made.isoformat()} in shard {first.shard}")

    # list() reads it within the transaction.
    photos = in_shard_of(user_id, lambda shard: list(Photo.objects.filter(
        id__gte=MinId(first.made),
        id__lt=MinId(first.made + timedelta(minutes=1)),
    ).order_by("-id")))
    print(f"in the minute from then: {len(photos)} photos, the newest {photos[0].id}")

    # The next page has the ids below the last one of this page.
    def page_before(last):
        photos = Photo.objects.filter(user_id=user_id).order_by("-id")
        if last:
            photos = photos.filter(id__lt=last)
        return list(photos.values_list("id", flat=True)[:400])

    count, last, page = 0, None, None
    while page is None or len(page) == 400:
        page = in_shard_of(user_id, lambda shard: page_before(last))
        count += len(page)
        last = page[-1] if page else last
    print(f"in pages of 400: {count} photos, the oldest {last}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
