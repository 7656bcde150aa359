package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
)

const shardCount = 2000

// Shards knows where shards live, and what to do when one has moved.  It is for many
// goroutines.
type Shards struct {
	lock  sync.Mutex
	pools map[string]*sql.DB // by home
	homes map[int64]string   // by shard, where it is not the first server
	limit time.Duration
}

// NewShards makes one that begins with the server of PGHOST, PGPORT and so on.
func NewShards() *Shards {
	return &Shards{pools: map[string]*sql.DB{}, homes: map[int64]string{}, limit: 30 * time.Second}
}

// Of runs work in a transaction in the user's shard.  If the server refuses it since
// the shard has moved, nothing of it has happened, and it is done again at the new
// home.
func (s *Shards) Of(ctx context.Context, user int64, work func(tx *sql.Tx, schema string) error) error {
	shard := user % shardCount
	deadline := time.Now().Add(s.limit)
	for {
		pool, err := s.pool(shard)
		if err != nil {
			return err
		}
		err = transact(ctx, pool, func(tx *sql.Tx) error { return work(tx, fmt.Sprintf("insta%d", shard)) })

		// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01:
		// the copy that the move has left has been renamed, or dropped.
		var refusal *pq.Error
		if err != nil && !errors.As(err, &refusal) {
			s.setHome(shard, "") // that server may be no more; the first one knows
		}
		if refusal == nil || !strings.Contains("SN001 SN002 3F000 42P01", string(refusal.Code)) || time.Now().After(deadline) {
			return err
		}
		var home string
		if err := pool.QueryRowContext(ctx, "SELECT snowid.shard_home($1)", shard).Scan(&home); err != nil {
			return err
		}
		if home == "missing" || home == "here" && !strings.HasPrefix(string(refusal.Code), "SN") {
			return err
		}
		if home != "here" && home != "closed" {
			s.setHome(shard, home)
		}
		if refusal.Code == "SN002" || home == "closed" {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func transact(ctx context.Context, pool *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // of no effect after a commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Shards) setHome(shard int64, home string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.homes[shard] = home
}

// Close closes all connections.
func (s *Shards) Close() {
	for _, pool := range s.pools {
		pool.Close()
	}
}

// A home is a connection string as the registry has it; what it lacks is from PGHOST
// and so on.
func (s *Shards) pool(shard int64) (*sql.DB, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	home := s.homes[shard]
	if pool := s.pools[home]; pool != nil {
		return pool, nil
	}
	pairs := home
	if strings.HasPrefix(home, "postgres") {
		var err error
		if pairs, err = pq.ParseURL(home); err != nil {
			return nil, err
		}
	}
	// lib/pq doesn't know libpq's sslmode "prefer".  For PgBouncer before 1.21: a
	// statement is prepared and executed in one round trip.
	pool, err := sql.Open("postgres", "sslmode=disable binary_parameters=yes "+pairs)
	if err == nil {
		s.pools[home] = pool
	}
	return pool, err
}
