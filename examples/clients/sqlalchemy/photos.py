"""Photos of a user, in the shard where the user lives.

    /usr/bin/python3 photos.py 31341
"""
import sys
from datetime import timedelta

from sqlalchemy import BigInteger, Column, FetchedValue, Text, create_engine, func, select
from sqlalchemy.orm import Session, declarative_base
from sqlalchemy.pool import NullPool

Base = declarative_base()


class Photo(Base):
    __tablename__ = "photos"
    __table_args__ = {"schema": "shard"}  # stands for the shard's schema

    id = Column(BigInteger, primary_key=True, server_default=FetchedValue())
    user_id = Column(BigInteger, nullable=False)
    caption = Column(Text, nullable=False)


# From PGHOST, PGPORT and so on.  PgBouncer is the pool, so none here.
engine = create_engine("postgresql+psycopg2://", poolclass=NullPool)


def session_of(user_id):
    """A session in which "shard" is the schema of the user's shard."""
    schema = f"insta{user_id % 2000}"
    return Session(engine.execution_options(schema_translate_map={"shard": schema}))


def main(user_id):
    print(f"user {user_id} lives in shard {user_id % 2000}")

    with session_of(user_id) as session:
        first = Photo(user_id=user_id, caption="the first")
        session.add(first)
        session.commit()
        print(f"inserted {first.id}")

        more = [Photo(user_id=user_id, caption=f"photo {n}") for n in range(1, 1001)]
        session.add_all(more)
        session.flush()
        print(f"inserted {len(more)} more, the last {more[-1].id}")
        session.commit()

        made, shard = session.execute(
            select(func.snowid.id_timestamp(first.id), func.snowid.id_shard(first.id))
        ).one()
        print(f"made {made.isoformat()} in shard {shard}")

        photos = session.scalars(
            select(Photo)
            .where(func.snowid.id_between(Photo.id, made, made + timedelta(minutes=1)))
            .order_by(Photo.id.desc())
        ).all()
        print(f"in the minute from then: {len(photos)} photos, the newest {photos[0].id}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
