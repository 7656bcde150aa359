"""Photos of a user, in the shard where the user lives.

    /usr/bin/python3 photos.py 31341
"""
import sys
import time
from datetime import timedelta
from functools import lru_cache

from sqlalchemy import BigInteger, Column, Text, create_engine, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, declarative_base
from sqlalchemy.pool import NullPool

try:
    from sqlalchemy.dialects.postgresql import psycopg as dialect  # of SQLAlchemy 2
    from psycopg.conninfo import conninfo_to_dict as parse_dsn
    OPTIONS = {"prepare_threshold": None}  # PgBouncer may have another server next time
except ImportError:
    from sqlalchemy.dialects.postgresql import psycopg2 as dialect
    from psycopg2.extensions import parse_dsn
    OPTIONS = {}

SHARDS = 2000
# SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
# copy that the move has left has been renamed, or dropped.
REFUSALS = ["SN001", "SN002", "3F000", "42P01"]

Base = declarative_base()


class Photo(Base):
    __tablename__ = "photos"
    __table_args__ = {"schema": "shard"}  # stands for the shard's schema

    # As an auto-increment, without server_default: 2.0 would make an INSERT of each row.
    id = Column(BigInteger, primary_key=True)
    user_id = Column(BigInteger, nullable=False)
    caption = Column(Text, nullable=False)


homes = {}  # by shard, where it is not the first server


@lru_cache(maxsize=None)
def engine_of(home):
    """A home is a connection string as the registry has it; what it lacks is from
    PGHOST, PGPORT and so on.  PgBouncer is the pool, so none here."""
    return create_engine(f"postgresql+{dialect.dialect.driver}://", connect_args={**parse_dsn(home), **OPTIONS}, poolclass=NullPool)


def in_shard_of(user_id, work, seconds=30):
    """Returns work(session), which is done in one transaction, and in which "shard" is
    the schema of the user's shard.

    If the server refuses it since the shard has moved, nothing of it has happened, and
    it is done again at the new home.
    """
    shard = user_id % SHARDS
    deadline = time.monotonic() + seconds
    while True:
        engine = engine_of(homes.get(shard, ""))
        here = engine.execution_options(schema_translate_map={"shard": f"insta{shard}"})
        try:
            # What is returned is of use after the transaction.
            with Session(here, expire_on_commit=False) as session, session.begin():
                return work(session)
        except DBAPIError as error:
            # Of psycopg 3, or of psycopg2.
            state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
            if state not in REFUSALS or time.monotonic() > deadline:
                if not state or state.startswith(("57P", "25006")):
                    homes.pop(shard, None)  # that server may be no more; the first one knows
                raise
            with Session(engine) as session:
                home = session.scalar(select(func.snowid.shard_home(shard)))
            if home == "missing" or home == "here" and not state.startswith("SN"):
                raise
        if home not in ("here", "closed"):
            homes[shard] = home
        if state == "SN002" or home == "closed":
            time.sleep(0.1)


def insert(session, photos):
    session.add_all(photos)
    session.flush()
    return photos


def main(user_id):
    print(f"user {user_id} lives in shard {user_id % SHARDS}")

    [first] = in_shard_of(user_id, lambda session: insert(session, [Photo(user_id=user_id, caption="the first")]))
    print(f"inserted {first.id}")

    more = in_shard_of(user_id, lambda session: insert(
        session, [Photo(user_id=user_id, caption=f"photo {n}") for n in range(1, 1001)]
    ))
    print(f"inserted {len(more)} more, the last {more[-1].id}")

    made, shard = in_shard_of(user_id, lambda session: session.execute(
        select(func.snowid.id_timestamp(first.id), func.snowid.id_shard(first.id))
    ).one())
    print(f"made {made.isoformat()} in shard {shard}")

    photos = in_shard_of(user_id, lambda session: session.scalars(
        select(Photo)
        .where(func.snowid.id_between(Photo.id, made, made + timedelta(minutes=1)))
        .order_by(Photo.id.desc())
    ).all())
    print(f"in the minute from then: {len(photos)} photos, the newest {photos[0].id}")

    # The next page has the ids below the last one of this page.
    count, last, page = 0, None, None
    while page is None or len(page) == 400:
        query = select(Photo.id).where(Photo.user_id == user_id).order_by(Photo.id.desc()).limit(400)
        if last:
            query = query.where(Photo.id < last)
        page = in_shard_of(user_id, lambda session: session.scalars(query).all())
        count += len(page)
        last = page[-1] if page else last
    print(f"in pages of 400: {count} photos, the oldest {last}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
