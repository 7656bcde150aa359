// Photos of a user, in the shard where the user lives.
//
//	go run . 31341
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/lib/pq"
)

func main() {
	user, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	shards := NewShards()
	defer shards.Close()
	if err := photos(context.Background(), shards, user); err != nil {
		log.Fatal(err)
	}
}

func photos(ctx context.Context, shards *Shards, user int64) error {
	fmt.Printf("user %d lives in shard %d\n", user, shardOf(user))

	// The schema qualifies all names: no SET search_path.
	var first int64
	err := shards.Of(ctx, user, func(tx *sql.Tx, schema string) error {
		return tx.QueryRowContext(ctx, "INSERT INTO "+schema+".photos (user_id, caption) VALUES ($1, $2) RETURNING id",
			user, "the first").Scan(&first)
	})
	if err != nil {
		return err
	}
	fmt.Printf("inserted %d\n", first)

	// One statement, in the order of the array.
	captions := make([]string, 1000)
	for n := range captions {
		captions[n] = fmt.Sprintf("photo %d", n+1)
	}
	var inserted int
	var newest int64
	err = shards.Of(ctx, user, func(tx *sql.Tx, schema string) error {
		rows, err := tx.QueryContext(ctx, "INSERT INTO "+schema+".photos (user_id, caption) "+
			"SELECT $1, caption FROM unnest($2::text[]) WITH ORDINALITY AS u (caption, n) ORDER BY n RETURNING id",
			user, pq.Array(captions))
		if err != nil {
			return err
		}
		defer rows.Close()
		for inserted = 0; rows.Next(); inserted++ {
			if err := rows.Scan(&newest); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	fmt.Printf("inserted %d more, the last %d\n", inserted, newest)

	var made time.Time
	var shard int
	err = shards.Of(ctx, user, func(tx *sql.Tx, schema string) error {
		return tx.QueryRowContext(ctx, "SELECT created_at, shard FROM snowid.id_parts($1)", first).Scan(&made, &shard)
	})
	if err != nil {
		return err
	}
	fmt.Printf("made %s in shard %d\n", made.Format(time.RFC3339Nano), shard)

	var count int
	err = shards.Of(ctx, user, func(tx *sql.Tx, schema string) error {
		return tx.QueryRowContext(ctx, "SELECT count(*), max(id) FROM "+schema+".photos WHERE snowid.id_between(id, $1, $2)",
			made, made.Add(time.Minute)).Scan(&count, &newest)
	})
	if err != nil {
		return err
	}
	fmt.Printf("in the minute from then: %d photos, the newest %d\n", count, newest)

	// The next page has the ids below the last one of this page.
	count = 0
	last := int64(1<<63 - 1)
	for size := 400; size == 400; count += size {
		err = shards.Of(ctx, user, func(tx *sql.Tx, schema string) error {
			rows, err := tx.QueryContext(ctx, "SELECT id FROM "+schema+".photos WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT 400",
				user, last)
			if err != nil {
				return err
			}
			defer rows.Close()
			for size = 0; rows.Next(); size++ {
				if err := rows.Scan(&last); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("in pages of 400: %d photos, the oldest %d\n", count, last)
	return nil
}
